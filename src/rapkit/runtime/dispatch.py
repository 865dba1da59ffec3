"""Build the POSTs that follow from a step: invocations, users' choices, notices.

What lies in the outbox holds no secret of ours: callback URLs and bearer tokens are put in when a POST is sent. The first two lines of its
body say which server it is for and how to make the same callback URL again, the rest is the message.
"""

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from pydantic_core import from_json, to_json

from rapkit.delivery.guard import Guard
from rapkit.delivery.outbox_sender import DeliveryOutcome, FollowUp
from rapkit.delivery.retry import PostKind
from rapkit.errors import ConfigError, DeliveryError, ForbiddenTarget
from rapkit.http.authentication import is_loopback_host
from rapkit.ids import new_id
from rapkit.kernel.catalog import Catalog
from rapkit.kernel.incoming import AnswerUndelivered, Incoming, Undelivered
from rapkit.kernel.thread import Pending, Thread
from rapkit.mailbox import Outcome, Outgoing, TakenPost
from rapkit.protocol import CallCancelled, ChoiceMade, ThreadClosed, dump
from rapkit.runtime import audit_log
from rapkit.runtime.callback_urls import CallbackUrls
from rapkit.runtime.in_process import origin_of_in_process
from rapkit.runtime.mail_codec import encode_mail
from rapkit.runtime.server import Server
from rapkit.tracing import current_traceparent

_STALE = 409
_NEEDS_A_TOKEN = (401, 403)
_UNKNOWN_ORIGIN = "unknown"
_CHOICE = "/choice"
_NOWHERE = "http://unknown.invalid/"


class Dispatch:
    """Builds POSTs for the outbox, completes them when they are sent, and reports those that are given up to their threads."""

    def __init__(self, servers: Sequence[Server], callback_urls: CallbackUrls, guard: Guard) -> None:
        self._servers = {server.key: server for server in servers}
        self._callback_urls = callback_urls
        self._guard = guard

    # What is put into the outbox

    def invocation(self, thread: Thread, call_id: str, call: Pending, catalog: Catalog) -> Outgoing:
        """A call on its way to its server (INV-1)."""
        document = catalog.document(call.server)
        server = self._servers.get(call.server)
        url = server.endpoint(document) if server and document else _NOWHERE
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
        return self._post(PostKind.INVOCATION, lane_of(thread.id, call_id), call.server, url, body)

    def choice(self, thread_id: str, call_id: str, server: str, response_url: str, selected: int) -> Outgoing:
        """A user's choice on its way to the tool that asked (CHO-1); `answer_url` has said where to when it did."""
        lane = lane_of(thread_id, call_id) + _CHOICE
        body = dump(ChoiceMade(id=call_id, selected=selected))
        return self._post(PostKind.ANSWER, lane, server, response_url, body)

    def cancelled(self, thread_id: str, call_id: str, server: str = "") -> list[Outgoing]:
        """The notice that a call was cancelled, for every server (CAN-1), or for the one that is named, if it is still configured."""
        body = dump(CallCancelled(thread_id=thread_id, tool_call_id=call_id))
        told = (each for key, each in self._servers.items() if server in ("", key))
        return [self._notice(each, "/cancel_tool_call", body) for each in told]

    def closed(self, thread_id: str) -> list[Outgoing]:
        """The notice that a thread was closed, for every server, used or not (CLO-1)."""
        body = dump(ThreadClosed(thread_id=thread_id))
        return [self._notice(server, "/close_thread", body) for server in self._servers.values()]

    def _notice(self, server: Server, path: str, body: bytes) -> Outgoing:
        return self._post(PostKind.NOTICE, new_id("notice"), server.key, server.base + path, body, once=True)

    def _post(self, kind: PostKind, lane: str, server: str, url: str, body: bytes, *, once: bool = False) -> Outgoing:
        return Outgoing(
            id=new_id("msg"),
            lane=lane,
            kind=kind,
            origin=self._origin_of(url),
            url=url,
            body=b"\n".join((server.encode(), self._callback_urls.seal.encode(), body)),
            once=once,
            traceparent=current_traceparent(),
        )

    def _origin_of(self, url: str) -> str:
        try:
            return origin_of_in_process(url) or self._guard.check_url(url).origin
        except ForbiddenTarget:
            return _UNKNOWN_ORIGIN  # the outbox sender will give it up, and say why

    def answer_url(self, server: str, catalog: Catalog, response_url: str) -> str | None:
        """Where a user's choice goes that a tool of this server asked for; None if it may not be sent there."""
        known = self._servers.get(server)
        return None if known is None else known.answer_url(catalog.document(server), response_url)

    # When it is sent

    async def prepare(self, taken: TakenPost) -> tuple[bytes, Mapping[str, str]]:
        """The message with what must not be stored, and what proves to the server who we are."""
        outgoing = taken.outgoing
        name, seal, body = outgoing.body.split(b"\n", 2)
        server = self._servers.get(name.decode())
        if server is None:
            raise ConfigError(f"{name.decode()} is not configured any more.")
        if not server.is_local and is_loopback_host(urlsplit(outgoing.url).hostname or ""):
            raise ForbiddenTarget(f"{name.decode()} is not on this machine, and may not have us call anything that is.")
        if outgoing.kind == PostKind.INVOCATION:
            thread_id, call_id = ids_of(outgoing.lane)
            url = self._callback_urls.callback_url(thread_id, call_id, name.decode(), seal.decode())
            body = b'{"callback_url":' + to_json(url) + b"," + body[1:]
        try:
            return body, await server.headers("POST", outgoing.url, body)
        except ConfigError as error:
            raise DeliveryError(str(error)) from None  # a secret that cannot be read now may be there again soon

    # When it has come to an end

    async def report(self, taken: TakenPost, delivery_outcome: DeliveryOutcome) -> FollowUp:
        """What the thread is told of a POST that was given up (INV-6)."""
        outgoing = taken.outgoing
        if outgoing.kind not in (PostKind.INVOCATION, PostKind.ANSWER):
            return FollowUp()
        thread_id, call_id = ids_of(outgoing.lane)
        if outgoing.kind == PostKind.INVOCATION:
            audit_log.log_dispatch(thread_id, call_id, outgoing.body, delivery_outcome.problem)
        if delivery_outcome.outcome is not Outcome.DEAD:
            return FollowUp()
        problem = (delivery_outcome.problem or "it was refused").rstrip(".")
        message: Incoming = AnswerUndelivered(call_id, problem)
        if outgoing.kind == PostKind.INVOCATION:
            # A refusal says nothing about earlier attempts: their answers may have been lost after the call was executed.
            refused = (
                delivery_outcome.status is not None and 400 <= delivery_outcome.status < 500 and taken.attempts == 1
            )
            if delivery_outcome.status in _NEEDS_A_TOKEN:
                problem += "; the agent has to be given credentials that the server takes"
            stale = delivery_outcome.status == _STALE
            version = _version_of(outgoing) if stale else None
            message = Undelivered(call_id, problem, refused=refused, stale=stale, version=version)
        return FollowUp(encode_mail(thread_id, message, live=call_id))


def _version_of(invocation: Outgoing) -> str | None:
    """The toolset version an invocation was sent with."""
    version: str | None = from_json(invocation.body.split(b"\n", 2)[2]).get("toolset_version")
    return version


def lane_of(thread_id: str, call_id: str) -> str:
    """The lane of what is sent about a call."""
    return f"{thread_id}/{call_id}"


def ids_of(lane: str) -> tuple[str, str]:
    """Thread and call of a lane."""
    thread_id, call_id, *_ = lane.split("/")
    return thread_id, call_id
