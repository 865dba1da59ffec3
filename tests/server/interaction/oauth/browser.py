"""A user with a browser: opens the link, reads the consent page, decides, and is sent back."""

import re
from dataclasses import dataclass
from html import unescape
from urllib.parse import urlencode, urljoin

from pyreqwest.client import ClientBuilder


@dataclass(frozen=True)
class Shown:
    """What the browser was shown."""

    status: int
    headers: dict[str, str]
    text: str


class Browser:
    """A user's. It logs nothing, so that what is found in a log was put there by somebody else."""

    def __init__(self, user: str = "ann") -> None:
        self.user = user

    async def decide(self, auth_url: str, *, allow: bool = True) -> str:
        """Open the link and press a button; says where the provider sends the browser then."""
        page = await self.get(auth_url)
        assert page.status == 200, page.text
        found = re.findall(r'name="([^"]*)" value="([^"]*)"', page.text)
        fields = {unescape(name): unescape(value) for name, value in found}
        form = urlencode({**fields, "user": self.user if allow else ""})
        sent = await self._send("POST", urljoin(auth_url, "/authorize"), form)
        assert sent.status == 302, sent.text
        return sent.headers["location"]

    async def authorise(self, auth_url: str, *, allow: bool = True) -> Shown:
        """Decide, follow the provider's redirect, and say what our server showed."""
        return await self.get(await self.decide(auth_url, allow=allow))

    async def get(self, url: str) -> Shown:
        """Load a page."""
        return await self._send("GET", url)

    async def _send(self, method: str, url: str, form: str | None = None) -> Shown:
        async with ClientBuilder().follow_redirects(False).no_proxy().build() as client:
            request = client.request(method, url)
            if form is not None:
                request = request.header("content-type", "application/x-www-form-urlencoded").body_text(form)
            response = await request.build().send()
            return Shown(response.status, dict(response.headers), await response.text())
