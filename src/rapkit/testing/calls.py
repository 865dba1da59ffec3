"""Calls in progress, and what tests wait for: questions, results and events."""

from collections.abc import AsyncIterator
from typing import TypeVar

from rapkit.protocol import Callback, OAuthRequest, SubscriptionEvent, ToolResult, UserChoice
from rapkit.testing.call_messages import CallMessages
from rapkit.testing.result import Result
from rapkit.testing.toolset_fixture import ToolsetFixture
from rapkit.testing.user_requests import Choice, Consent

M = TypeVar("M", OAuthRequest, SubscriptionEvent, UserChoice)


class Call:
    """A call that was acknowledged. What does not come within the test's patience is an `AssertionError` that tells what came instead."""

    def __init__(self, fixture: ToolsetFixture, call_messages: CallMessages) -> None:
        self._fixture = fixture
        self._call_messages = call_messages
        self._taken: set[int] = set()

    @property
    def id(self) -> str:
        """The id of the call."""
        return self._call_messages.id

    @property
    def messages(self) -> list[Callback]:
        """All it has sent so far."""
        return list(self._call_messages.messages)

    async def result(self) -> Result:
        """What it is answered with."""
        return Result.of(await self._answer())

    async def choice(self) -> Choice:
        """The next question it asks."""
        return Choice(self._fixture.server, await self._next(UserChoice, "question"))

    async def oauth(self) -> Consent:
        """The next request to authorise the server."""
        asked = await self._next(OAuthRequest, "request to authorise the server")
        return Consent(self._fixture.server, asked.auth_url)

    async def subscribed(self) -> "Subscription":
        """The subscription it has become. If only time confirms it, the clock is advanced by its `confirm_after`."""
        await self._fixture.let_confirm(self._call_messages)
        answer = await self._answer()
        if not answer.subscription:
            raise AssertionError(f"{self._call_messages} is no subscription. It was answered: {answer.text!r}")
        return Subscription(self)

    async def cancel(self) -> None:
        """Say that nobody waits for it any more. It may still be answered; a subscription is silent from now on."""
        call = self._call_messages
        await self._fixture.notify("/cancel_tool_call", call.caller, call.thread_id, call.id)

    async def _answer(self) -> ToolResult:
        return await self._fixture.inbox.wait(self._call_messages, "result", lambda: self._call_messages.result)

    async def _next(self, kind: type[M], what: str) -> M:
        """The first message of a kind that was not taken before."""

        def find() -> tuple[int, M] | None:
            numbered = enumerate(self._call_messages.messages)
            return next(((n, m) for n, m in numbered if isinstance(m, kind) and n not in self._taken), None)

        number, message = await self._fixture.inbox.wait(self._call_messages, what, find)
        self._taken.add(number)
        return message


class Subscription:
    """A call that goes on: now and then it sends an event. Iterate over it to get them all, up to the final one."""

    def __init__(self, call: Call) -> None:
        self._call = call

    @property
    def id(self) -> str:
        """The id of the call that subscribed."""
        return self._call.id

    @property
    def confirmation(self) -> Result:
        """What confirmed it."""
        (answer,) = [message for message in self._call.messages if isinstance(message, ToolResult)]
        return Result.of(answer)

    @property
    def events(self) -> list[SubscriptionEvent]:
        """All its events so far."""
        return [message for message in self._call.messages if isinstance(message, SubscriptionEvent)]

    @property
    def ended(self) -> bool:
        """Whether the final event has come."""
        return any(event.final for event in self.events)

    async def event(self) -> SubscriptionEvent:
        """The next event."""
        return await self._call._next(SubscriptionEvent, "(more) events")

    async def __aiter__(self) -> AsyncIterator[SubscriptionEvent]:
        """Its events, up to the final one."""
        while True:
            event = await self.event()
            yield event
            if event.final:
                return

    async def cancel(self) -> None:
        """End it: it sends nothing any more."""
        await self._call.cancel()
