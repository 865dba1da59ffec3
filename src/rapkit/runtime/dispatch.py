"""The POSTs that follow from a step: invocations, users' choices, notices.

What lies in the outbox holds no secret of ours: callback URLs and bearer tokens are put in when a POST is sent. The first line of its body
names the server it is for, the rest is the message.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pydantic_core import to_json

from rapkit.delivery.courier import Fate
from rapkit.delivery.guard import Guard
from rapkit.delivery.retry import Kind
from rapkit.errors import DeliveryError, ForbiddenTarget
from rapkit.ids import new_id
from rapkit.kernel.catalog import Catalog
from rapkit.kernel.incoming import AnswerUndelivered, Incoming, Undelivered
from rapkit.kernel.thread import Pending, Thread
from rapkit.mailbox import Letter, Outcome, Outgoing, Taken
from rapkit.protocol import CallCancelled, ChoiceMade, ThreadClosed, dump
from rapkit.runtime import audit
from rapkit.runtime.addresses import Addresses
from rapkit.runtime.letters import letter
from rapkit.runtime.server import Server

STALE = 409
STALE_PROBLEM = "stale"
_UNKNOWN_ORIGIN = "unknown"
_CHOICE = "/choice"


class Dispatch:
    """Makes POSTs for the outbox, completes them when they are sent, and tells threads of those that are given up."""

    def __init__(self, servers: Sequence[Server], addresses: Addresses, guard: Guard) -> None:
        self._servers = {server.key: server for server in servers}
        self._addresses = addresses
        self._guard = guard

    # What is put into the outbox

    def invocation(self, thread: Thread, call_id: str, call: Pending, catalog: Catalog) -> Outgoing:
        """A call on its way to its server (INV-1)."""
        document = catalog.document(call.server)
        url = document.endpoint if document else "http://unknown.invalid/"
        message = {
            "operation": call.operation,
            "arguments": call.arguments,
            "id": call_id,
            "call_id": call.provider_id or None,
            "group_id": thread.id,
            "thread_ancestors": thread.ancestors or None,
            "user_id": thread.user_id,
            "toolset_version": document.version if document else None,
        }
        body = to_json({name: value for name, value in message.items() if value is not None})
        return self._post(Kind.INVOCATION, lane_of(thread.id, call_id), call.server, url, body)

    def choice(self, thread_id: str, call_id: str, server: str, response_url: str, selected: int) -> Outgoing:
        """A user's choice on its way to the tool that asked (CHO-1)."""
        lane = lane_of(thread_id, call_id) + _CHOICE
        return self._post(Kind.ANSWER, lane, server, response_url, dump(ChoiceMade(id=call_id, selected=selected)))

    def cancelled(self, thread_id: str, call_id: str) -> list[Outgoing]:
        """The notice that a call was cancelled, for every server (CAN-1)."""
        body = dump(CallCancelled(thread_id=thread_id, tool_call_id=call_id))
        return [self._notice(server, "/cancel_tool_call", body) for server in self._servers.values()]

    def closed(self, thread_id: str) -> list[Outgoing]:
        """The notice that a thread was closed, for every server, used or not (CLO-1)."""
        body = dump(ThreadClosed(thread_id=thread_id))
        return [self._notice(server, "/close_thread", body) for server in self._servers.values()]

    def _notice(self, server: Server, path: str, body: bytes) -> Outgoing:
        return self._post(Kind.NOTICE, new_id("notice"), server.key, server.base + path, body, once=True)

    def _post(self, kind: Kind, lane: str, server: str, url: str, body: bytes, *, once: bool = False) -> Outgoing:
        return Outgoing(
            id=new_id("msg"),
            lane=lane,
            kind=kind,
            origin=self._origin_of(url),
            url=url,
            body=server.encode() + b"\n" + body,
            once=once,
        )

    def _origin_of(self, url: str) -> str:
        try:
            return self._guard.check_url(url).origin
        except ForbiddenTarget:
            return _UNKNOWN_ORIGIN  # the courier will give it up, and say why

    def may_ask(self, server: str, response_url: str) -> bool:
        """Whether a server may have answers sent there: to itself, or on this machine if it is there too."""
        known = self._servers.get(server)
        if known is None:
            return False
        try:
            target = self._guard.check_url(response_url)
            return target.origin == self._guard.check_url(known.base).origin or (
                known.is_local and Server(f"{target.scheme}://{_authority(response_url)}", allow_http=True).is_local
            )
        except ForbiddenTarget:
            return False

    # When it is sent

    def prepare(self, taken: Taken) -> tuple[bytes, Mapping[str, str]]:
        """The message with what must not be stored, and what proves to the server who we are."""
        outgoing = taken.outgoing
        name, _, body = outgoing.body.partition(b"\n")
        server = self._servers.get(name.decode())
        if server is None:
            raise DeliveryError(f"{name.decode()} is not configured any more.")
        if outgoing.kind == Kind.INVOCATION:
            thread_id, call_id = ids_of(outgoing.lane)
            url = self._addresses.callback_url(thread_id, call_id)
            body = b'{"callback_url":' + to_json(url) + b"," + body[1:]
        return body, server.headers()

    # When it has come to an end

    def report(self, taken: Taken, fate: Fate) -> Letter | None:
        """What the thread is told of a POST that was given up (INV-6)."""
        outgoing = taken.outgoing
        if outgoing.kind not in (Kind.INVOCATION, Kind.ANSWER):
            return None
        thread_id, call_id = ids_of(outgoing.lane)
        if outgoing.kind == Kind.INVOCATION:
            audit.dispatched(thread_id, call_id, outgoing.body, fate.problem)
        if fate.outcome is not Outcome.DEAD:
            return None
        problem = (fate.problem or "it was refused").rstrip(".")
        message: Incoming = AnswerUndelivered(call_id, problem)
        if outgoing.kind == Kind.INVOCATION:
            message = Undelivered(call_id, STALE_PROBLEM if fate.status == STALE else problem)
        return letter(thread_id, message, live=call_id)


def lane_of(thread_id: str, call_id: str) -> str:
    """The lane of what is sent about a call."""
    return f"{thread_id}/{call_id}"


def ids_of(lane: str) -> tuple[str, str]:
    """Thread and call of a lane."""
    thread_id, call_id, *_ = lane.split("/")
    return thread_id, call_id


def _authority(url: str) -> str:
    return urlsplit(url).netloc
