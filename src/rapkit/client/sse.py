"""Server-sent events, from bytes: the format of the HTML standard, without I/O."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from rapkit.errors import InvalidAnswer

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, slots=True)
class ServerSentEvent:
    """One event of a stream. `id` is None if the event has none of its own."""

    name: str
    data: str
    id: str | None


class SseDecoder:
    """Turns the pieces of a stream into events; `InvalidAnswer` if an event grows beyond `limit` bytes.

    An event counts once the empty line behind it has come. What a broken connection leaves of one is dropped, as the standard says: it is
    sent again after the id of the last whole event.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest = bytearray()
        self._searched = 0
        self._at_start = True
        self._name = ""
        self._data: list[bytes] = []
        self._id: str | None = None
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that this piece completes."""
        self._rest += chunk
        events: list[ServerSentEvent] = []
        for line in self._lines():
            self._size += len(line)
            if line:
                self._field(line)
            elif event := self._dispatch():
                events.append(event)
        if self._size + len(self._rest) > self._limit:
            raise InvalidAnswer(f"An event of the stream has more than {self._limit} bytes.")
        return events

    def _lines(self) -> Iterator[bytes]:
        begin = 0
        while found := _LINE_END.search(self._rest, max(begin, self._searched)):
            if found[0] == b"\r" and found.end() == len(self._rest):
                break  # a line feed may follow in the next piece
            line = bytes(self._rest[begin : found.start()])
            begin = found.end()
            if self._at_start:
                self._at_start = False
                line = line.removeprefix(_BOM)
            yield line
        del self._rest[:begin]
        self._searched = max(len(self._rest) - 1, 0)

    def _field(self, line: bytes) -> None:
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        match field:
            case b"event":
                self._name = value.decode(errors="replace")
            case b"data":
                self._data.append(value)
            case b"id" if b"\0" not in value:
                self._id = value.decode(errors="replace")

    def _dispatch(self) -> ServerSentEvent | None:
        name, data, id = self._name or "message", self._data, self._id
        self._name, self._data, self._id, self._size = "", [], None, 0
        return ServerSentEvent(name, b"\n".join(data).decode(errors="replace"), id) if data else None
