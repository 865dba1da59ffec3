"""A runtime in a test: calls a toolset for a user, in a thread."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import EllipsisType
from typing import Any

from pydantic_core import to_json

from rapkit.protocol import Callback, ToolsetDocument, parse_toolset
from rapkit.testing.call_messages import CallMessages
from rapkit.testing.callbacks import Callbacks
from rapkit.testing.calls import Call, Subscription
from rapkit.testing.clock import ManualClock
from rapkit.testing.providers import Providers
from rapkit.testing.requests import Reply
from rapkit.testing.result import Result
from rapkit.testing.toolset_fixture import ToolsetFixture

_OK = 200


@dataclass(frozen=True, slots=True)
class Identity:
    """Who calls, for whom, in which thread."""

    caller: str
    thread_id: str = "thread_1"
    user_id: str | None = "user_1"
    thread_ancestors: tuple[str, ...] = ()


class Client:
    """Calls the tools of a served toolset, and controls all that is around it."""

    def __init__(self, fixture: ToolsetFixture, identity: Identity) -> None:
        self._fixture = fixture
        self._identity = identity

    def as_(
        self,
        *,
        caller: str | None = None,
        thread_id: str | None = None,
        user_id: str | EllipsisType | None = ...,
        thread_ancestors: Sequence[str] | None = None,
    ) -> "Client":
        """The same server, called by another caller, for another user or in another thread. `user_id=None` is for nobody in particular."""
        identity = self._identity
        if caller is not None:
            self._fixture.server.requests.credentials(caller, b"", "/invoke")  # an unknown name is found now
            identity = replace(identity, caller=caller)
        if thread_id is not None:
            identity = replace(identity, thread_id=thread_id)
        if user_id is not ...:
            identity = replace(identity, user_id=user_id)
        if thread_ancestors is not None:
            identity = replace(identity, thread_ancestors=tuple(thread_ancestors))
        return Client(self._fixture, identity)

    # Calling

    async def call(self, operation: str, /, **arguments: Any) -> Result:
        """What a tool answers."""
        call = await self.start(operation, **arguments)
        return await call.result()

    async def start(self, operation: str, /, **arguments: Any) -> Call:
        """Call a tool, and return as soon as the server has acknowledged that."""
        who = self._identity
        number = next(self._fixture.numbers)
        call_messages = CallMessages(operation, f"call_{number}", who.thread_id, who.caller, f"model_{number}")
        invocation = {
            "operation": operation,
            "arguments": arguments,
            "id": call_messages.id,
            "call_id": call_messages.call_id,
            "callback_url": self._fixture.inbox.expect(call_messages),
            "group_id": who.thread_id,
            "thread_ancestors": who.thread_ancestors or None,
            "user_id": who.user_id,
        }
        reply = await self._fixture.server.requests.post("/invoke", to_json(invocation), who.caller)
        assert reply.status == _OK, f"{call_messages} was not accepted: {reply.status} {reply.text}"
        return Call(self._fixture, call_messages)

    async def subscribe(self, operation: str, /, **arguments: Any) -> Subscription:
        """Call a tool that sends events, and return when the subscription is confirmed."""
        call = await self.start(operation, **arguments)
        return await call.subscribed()

    async def close_thread(self) -> None:
        """Say that the thread is closed."""
        await self._fixture.notify("/close_thread", self._identity.caller, self._identity.thread_id)

    async def toolset(self) -> ToolsetDocument:
        """What the server tells about its tools."""
        reply = await self.request("GET", "/.well-known/rap-toolset")
        assert reply.status == _OK, f"Discovery failed: {reply.status} {reply.text}"
        return parse_toolset(reply.body)

    async def request(
        self,
        method: str,
        url: str,
        body: bytes | object = b"",
        *,
        headers: Mapping[str, str] | None = None,
        authenticated: bool = False,
    ) -> Reply:
        """Any request, such as one to a webhook, and what is answered. What is not bytes is sent as JSON.

        `url` is a path, or a URL the server has given away. Only if it is `authenticated` the caller's credentials are shown.
        """
        sent = body if isinstance(body, bytes) else to_json(body)
        requests, caller = self._fixture.server.requests, self._identity.caller
        credentials = requests.credentials(caller, sent, url, method) if authenticated else {}
        given = {"content-type": "application/json", **credentials, **(headers or {})}
        return await requests.send(method, url, sent, given)

    # What has come

    @property
    def messages(self) -> list[Callback]:
        """Everything the server has sent so far, to any caller, in order."""
        return list(self._fixture.inbox.messages)

    @property
    def views(self) -> Mapping[str, Any]:
        """The latest content of each view of the thread."""
        return self._fixture.inbox.views(self._identity.caller, self._identity.thread_id)

    async def settled(self) -> None:
        """Return when the server does nothing any more, until somebody calls it, answers it or advances the clock.

        Handlers that wait for something else, such as a thread, a program or the network, are not waited for.
        """
        await self._fixture.activity.settle()
        self._fixture.inbox.complain()

    # What is around

    @property
    def clock(self) -> ManualClock:
        """The server's clock."""
        return self._fixture.clock

    @property
    def callbacks(self) -> Callbacks:
        """The other end of the callback URLs, which can be made to fail."""
        return self._fixture.callbacks

    @property
    def oauth(self) -> Providers:
        """The OAuth providers."""
        return self._fixture.server.providers

    async def advance(self, seconds: float) -> None:
        """Set the clock forward, and return when everything has happened that was due by then: in order, each thing at its time."""
        await self._fixture.timeline.advance(seconds)
        self._fixture.inbox.complain()

    async def restart(self) -> None:
        """Stop the server in order, and start it again. Handlers that run may end before that, for as long as `Durations.grace` says."""
        await self._fixture.process.restart()

    async def crash(self) -> None:
        """Lose the server as by `kill -9`: it writes and sends nothing from this moment on. The next one starts on the same store."""
        await self._fixture.process.crash()

    def crash_after(self, operations: int) -> None:
        """Lose the server by itself, after so many more steps in its store. From then on it answers 503; `crash` starts the next one.

        To try a crash at every step: begin with 0, and go on until `lost` stays False.
        """
        self._fixture.process.crash_after(operations)

    @property
    def lost(self) -> bool:
        """Whether the server is lost."""
        return self._fixture.process.lost
