"""The pages shown in the user's browser after the redirect from a provider."""

from base64 import b64encode
from dataclasses import dataclass
from hashlib import sha256
from html import escape

from starlette.types import Send

_STYLE = (
    "body{font:1.1em/1.5 system-ui,sans-serif;max-width:32em;margin:20vh auto;padding:0 1em;color-scheme:light dark}"
)
_STYLE_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-type", b"text/html; charset=utf-8"),
    (b"content-security-policy", _POLICY.encode()),
    # The address has a code and a state in it, so it goes nowhere, and nothing of the page is kept.
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


@dataclass(frozen=True, slots=True)
class BrowserPage:
    """What happened, in a sentence or two. With `again` the browser asks once more after so many seconds."""

    status: int
    title: str
    text: str
    again: int | None = None

    @property
    def html(self) -> str:
        """The page itself: no script, no link, nothing from elsewhere."""
        title, text = escape(self.title), escape(self.text)
        return (
            f'<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
            f"<title>{title}</title><style>{_STYLE}</style><h1>{title}</h1><p>{text}</p></html>\n"
        )

    @property
    def headers(self) -> list[tuple[bytes, bytes]]:
        """Its headers."""
        after = () if self.again is None else ((b"refresh", b"%d" % self.again), (b"retry-after", b"%d" % self.again))
        return [*_HEADERS, *after]

    async def send(self, send: Send) -> None:
        """Answer a request with it."""
        body = self.html.encode()
        headers = [(b"content-length", b"%d" % len(body)), *self.headers]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
