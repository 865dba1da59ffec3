"""Requests to the user of an agent, and how a test answers them."""

from typing import TYPE_CHECKING

from rapkit.kernel.thread import OpenChoice
from rapkit.testing.user_requests import Consent

if TYPE_CHECKING:
    from rapkit.testing.agent_fixture import AgentFixture


class AskedToChoose:
    """A question to the user."""

    def __init__(self, fixture: "AgentFixture", thread_id: str, call_id: str, choice: OpenChoice) -> None:
        self.call_id = call_id
        """The call that waits for the answer."""
        self.prompt = choice.prompt
        """What is asked."""
        self.choices = choice.choices
        """What can be answered; nothing if any text can."""
        self.default = None if choice.default is None else choice.choices[choice.default]
        """What stands if the user dismisses the question."""
        self._fixture = fixture
        self._thread_id = thread_id

    async def select(self, choice: str) -> None:
        """Answer with one of the choices."""
        if choice not in self.choices:
            raise AssertionError(f"{self.prompt!r} cannot be answered with {choice!r}, only with: {self.choices}.")
        await self._answer(self.choices.index(choice))

    async def dismiss(self) -> None:
        """Answer nothing: the default stands."""
        await self._answer(None)

    async def answer(self, text: str) -> None:
        """Answer in words a question of the model's."""
        key = next(self._fixture.keys)
        await self._fixture.as_client(lambda threads: threads.answer(self._thread_id, self.call_id, text, key))

    async def _answer(self, selected: int | None) -> None:
        key = next(self._fixture.keys)
        await self._fixture.as_client(lambda threads: threads.choose(self._thread_id, self.call_id, selected, key))


class AskedToAuthorise:
    """A request to authorise a tool at an OAuth provider."""

    def __init__(self, fixture: "AgentFixture", call_id: str, url: str) -> None:
        self.call_id = call_id
        """The call that waits for it."""
        self.url = url
        """Where the user is sent."""
        self._fixture = fixture

    async def approve(self, token: str | None = None, *, expires_in: float | None = None) -> None:
        """Say yes: the provider gives the toolset this access token."""
        await self._consent().approve(token, expires_in=expires_in)

    async def deny(self) -> None:
        """Say no."""
        await self._consent().deny()

    def _consent(self) -> Consent:
        for served in self._fixture.served.values():
            if served.providers.knows(self.url):
                return Consent(served, self.url)
        raise AssertionError("No toolset of this test has made this URL. If a fake tool has, answer its call instead.")
