"""Requests to the user behind a call, and how a test answers them."""

from urllib.parse import urlencode

from rapkit.protocol import UserChoice
from rapkit.testing.requests import Reply
from rapkit.testing.served_toolset import ServedToolset

_OK = 200


class Choice:
    """A question to the user."""

    def __init__(self, server: ServedToolset, message: UserChoice) -> None:
        self._server = server
        self._message = message

    @property
    def prompt(self) -> str:
        """What is asked."""
        return self._message.prompt

    @property
    def choices(self) -> tuple[str, ...]:
        """What can be answered."""
        return self._message.choices

    @property
    def default(self) -> str:
        """What a user answers who dismisses the question."""
        return self._message.choices[self._message.default]

    @property
    def response_url(self) -> str:
        """Where the answer goes."""
        return self._message.response_url

    async def select(self, choice: str | int) -> None:
        """Answer with one of the choices, or with a number, as wrong as you like."""
        if isinstance(choice, str):
            if choice not in self.choices:
                raise AssertionError(f"{self.prompt!r} cannot be answered with {choice!r}, only with: {self.choices}.")
            choice = self.choices.index(choice)
        reply = await self.answer(choice)
        assert reply.status == _OK, f"The answer to {self.prompt!r} was refused with {reply.status}: {reply.text}"

    async def dismiss(self) -> None:
        """Answer as a runtime does whose user does not want to: with the default."""
        await self.select(self._message.default)

    async def answer(self, selected: object, *, id: str | None = None) -> Reply:
        """POST an answer, right or wrong, and return what the server says to that."""
        return await self._server.requests.post(self.response_url, {"id": id or self._message.id, "selected": selected})


class Consent:
    """A request to authorise the server at an OAuth provider."""

    def __init__(self, server: ServedToolset, auth_url: str) -> None:
        self._server = server
        self._inquiry = server.providers.inquiry(auth_url)
        self.url = auth_url
        """Where the user is sent."""

    @property
    def provider(self) -> str:
        """The name of the provider."""
        return self._inquiry.provider.name

    @property
    def scopes(self) -> tuple[str, ...]:
        """What the server wants to be allowed to."""
        return tuple(self._inquiry.provider.scopes)

    async def approve(self, token: str | None = None, *, expires_in: float | None = None) -> None:
        """Say yes: the provider gives the server this access token. One that expires can be refreshed."""
        code = self._server.providers.grant(self._inquiry, token, expires_in)
        await self._come_back(code=code)

    async def deny(self) -> None:
        """Say no."""
        await self._come_back(error="access_denied")

    async def come_back(self, **query: str) -> Reply:
        """Be sent back from the provider with a query of your own, and return the page the server shows."""
        url = f"{self._inquiry.redirect_uri}?{urlencode({'state': self._inquiry.state, **query})}"
        return await self._server.requests.send("GET", url)

    async def _come_back(self, **query: str) -> None:
        page = await self.come_back(**query)
        assert page.status == _OK, f"The redirect from {self.provider} was refused with {page.status}: {page.text}"
