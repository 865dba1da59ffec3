"""Limits on what an HTTP server accepts from peers before it has authenticated them."""

from dataclasses import dataclass, fields

from rapkit.errors import ConfigError


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Bounds on connections and on requests as they arrive. Times are seconds; a time in which the process was stopped does not count.

    `connections`: open at once, and never more than half the file descriptors of the process. Past it the connection that has been waiting
    longest for its peer is closed; if none waits, the new one is answered 503.
    `header_bytes`, `header_count`: all headers of a request together (431); trailers and chunk extensions have about as much.
    `url_bytes`: the path and query of a request (414). `pipelined`: requests sent ahead on one connection; those past it are not answered.
    `head_seconds`: from connecting, or from the first byte, to the end of the headers. `idle_seconds`: between two requests.
    `body_pause_seconds`: without a byte of a body; `body_rate`: bytes a second that a body has to come with on average. A slower body is
    answered 503, so that its sender tries again.
    `write_pause_seconds`: in which the peer takes nothing of a response that waits for it; then the connection is closed.
    `discard_bytes`, `discard_seconds`: what is read of a body that was refused before it was read, so that its sender gets to see why.
    """

    connections: int = 1000
    header_bytes: int = 32 * 1024
    header_count: int = 100
    url_bytes: int = 8 * 1024
    pipelined: int = 16
    head_seconds: float = 20.0
    idle_seconds: float = 75.0
    body_pause_seconds: float = 30.0
    body_rate: int = 1024
    write_pause_seconds: float = 60.0
    discard_bytes: int = 256 * 1024 * 1024
    discard_seconds: float = 30.0

    def __post_init__(self) -> None:
        """Refuse limits that would let nothing through."""
        for each in fields(self):
            value = getattr(self, each.name)
            if not value > 0:  # written so that NaN fails too
                raise ConfigError(f"{each.name} is a number above 0, not {value}.")
