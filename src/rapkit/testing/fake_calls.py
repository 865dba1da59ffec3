"""Calls of fake tools, which a test answers by hand: now, later, twice or never."""

import itertools
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rapkit.delivery.http_client import Poster
from rapkit.delivery.signatures import MESSAGE_ID
from rapkit.errors import DeliveryError
from rapkit.protocol import (
    Callback,
    Invocation,
    OAuthRequest,
    SubscriptionEvent,
    ToolResult,
    UserChoice,
    ViewUpdate,
    dump,
)
from rapkit.testing.bounded_wait import BoundedWait
from rapkit.testing.call_messages import describe

_OK, _NOT_REACHED = 200, 599


class FakeCall:
    """A call as its tool gets it. What the agent does not take is an `AssertionError`, except with `send`, which says how it answered."""

    def __init__(
        self, invocation: Invocation, transport: Poster, waiting: BoundedWait, response_url: Callable[["FakeCall"], str]
    ) -> None:
        self.invocation = invocation
        self.cancelled = False
        """Whether a notice said that nobody waits for it any more."""
        self._transport = transport
        self._waiting = waiting
        self._response_url = response_url
        self._numbers = itertools.count(1)
        self._last: tuple[Callback, str] | None = None
        self._chosen: deque[int] = deque()

    def __str__(self) -> str:
        """Which call it is."""
        return f"{self.invocation.operation!r} ({self.id} in {self.thread_id}) with {dict(self.arguments)}"

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.invocation.id

    @property
    def thread_id(self) -> str:
        """The thread that calls."""
        return self.invocation.group_id

    @property
    def user_id(self) -> str | None:
        """The user it is for."""
        return self.invocation.user_id

    @property
    def arguments(self) -> Mapping[str, Any]:
        """What it was called with."""
        return self.invocation.arguments

    async def result(self, text: str) -> None:
        """Answer it."""
        await self._deliver(self.as_result(text))

    async def confirm(self, text: str = "Subscribed.") -> None:
        """Answer that it goes on as a subscription."""
        await self._deliver(self.as_result(text, subscription=True))

    async def event(self, text: str, *, associative: bool = False, final: bool = False) -> None:
        """Tell of something that happened: in the thread itself if it is `associative`, for the last time if it is `final`."""
        await self._deliver(
            SubscriptionEvent(
                group_id=self.thread_id, tool_call_id=self.id, text=text, associative=associative, final=final
            )
        )

    async def oauth(self, url: str) -> None:
        """Send the user to a page where they authorise the tool."""
        call_id = self.invocation.call_id
        await self._deliver(OAuthRequest(group_id=self.thread_id, id=self.id, call_id=call_id, auth_url=url))

    async def choose(self, prompt: str, choices: Sequence[str], default: int = 0) -> None:
        """Ask the user. What they answer comes with `chosen`."""
        await self._deliver(
            UserChoice(
                group_id=self.thread_id,
                id=self.id,
                call_id=self.invocation.call_id,
                prompt=prompt,
                choices=tuple(choices),
                default=default,
                response_url=self._response_url(self),
            )
        )

    async def chosen(self) -> int:
        """The number of the choice that the user made."""

        async def find() -> int | None:
            return self._chosen.popleft() if self._chosen else None

        async def told() -> str:
            return f"The call is {self}."

        return await self._waiting.until(find, "No answer of the user came", told)

    async def view(self, view_type: str, content: Any) -> None:
        """Show something beside the conversation."""
        await self._deliver(ViewUpdate(group_id=self.thread_id, view_type=view_type, content=content))

    async def send(self, message: Callback, *, message_id: str | None = None) -> int:
        """Send any message; the status it was answered with, or 599 if the agent could not be reached."""
        self._last = (message, message_id or self.new_message_id())
        try:
            answer = await self._transport.post(
                self.invocation.callback_url, dump(self._last[0]), {MESSAGE_ID: self._last[1]}
            )
        except DeliveryError:
            return _NOT_REACHED
        return answer.status

    async def again(self) -> int:
        """Send the last message once more, as a tool does that did not hear the answer; the status of this time."""
        assert self._last is not None, f"{self} has sent nothing yet."
        message, message_id = self._last
        return await self.send(message, message_id=message_id)

    # What its tool does

    def as_result(self, text: str, *, subscription: bool = False) -> ToolResult:
        """The message that answers it."""
        call_id = self.invocation.call_id
        return ToolResult(group_id=self.thread_id, id=self.id, call_id=call_id, text=text, subscription=subscription)

    def new_message_id(self) -> str:
        """An id for a message that was not sent before."""
        return f"msg_{self.thread_id}_{self.id}_{next(self._numbers)}"

    def choose_for(self, selected: int) -> None:
        """The user's answer came."""
        self._chosen.append(selected)

    async def _deliver(self, message: Callback) -> None:
        status = await self.send(message)
        assert status == _OK, f"The agent answered {status} to this of {self}: {describe(message)}"
