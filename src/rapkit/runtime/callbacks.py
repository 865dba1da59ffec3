"""Receive callbacks: validate them, make them durable, then acknowledge (CB-7, CB-10, CB-14)."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from rapkit.errors import InvalidMessage
from rapkit.http.requests import Refusal, TooLarge
from rapkit.kernel.incoming import CallbackRefused
from rapkit.mailbox import AcceptResult, NewMail
from rapkit.protocol import Callback, SubscriptionEvent, ToolResult, ViewUpdate, parse_callback
from rapkit.runtime.callback_signatures import CallbackSignatures
from rapkit.runtime.callback_urls import CallbackTarget, CallbackUrls
from rapkit.runtime.late_subscriptions import LateSubscriptions
from rapkit.runtime.mail_codec import encode_callback, encode_mail, ended_key
from rapkit.runtime.refused_callbacks import RefusedCallback
from rapkit.tracing import read_traceparent
from rapkit.work.offload import offload

_MESSAGE_ID = b"webhook-id"
_LONGEST_ID = 256
_LONGEST_PROBLEM = 500

log = logging.getLogger("rapkit.callbacks")

_NOTHING_LIVE = (
    "Nothing waits for this: the call has its result, was cancelled, or its thread is closed. Do not send it again."
)

Headers = Mapping[bytes, bytes]
Accept = Callable[[NewMail], Awaitable[AcceptResult]]
"""Puts mail into a thread's box, durably."""
Remembers = Callable[[str, str], Awaitable[bool]]
"""Whether mail to a thread with this `dedup` would be a duplicate."""


class CallbackReceiver:
    """Receives the callbacks of tools.

    A thread that waits for an answer learns that it was refused for good before the sender does (CB-15).
    """

    def __init__(
        self,
        accept: Accept,
        remembers: Remembers,
        callback_urls: CallbackUrls,
        late: LateSubscriptions,
        signatures: CallbackSignatures,
    ) -> None:
        self._accept = accept
        self._remembers = remembers
        self._callback_urls = callback_urls
        self._late = late
        self.signed = signatures.signed
        self.verify = signatures.verify

    def call_of(self, token: str) -> CallbackTarget:
        """The call of a callback URL, or a `Refusal` if it is none of ours."""
        call = self._callback_urls.read(token)
        if call is None:
            raise Refusal(404, "There is nothing at this URL.")
        return call

    async def accept(self, call: CallbackTarget, body: bytes, headers: Headers) -> None:
        """Return once the message is durable, or was before; else a `Refusal` says why not.

        The order is fixed: is it a message (400), is it about the call of its URL (404), is that call live (410).
        """
        thread_id, call_id = call.thread_id, call.call_id
        try:
            callback = await offload(len(body), parse_callback, body)
        except InvalidMessage as error:
            await self._refuse_malformed(thread_id, call_id, body, headers, str(error))
            raise Refusal(400, str(error)) from None
        if callback.group_id != thread_id or _call_of(callback) not in (None, call_id):
            log.warning("a callback for one call came to the URL of another", extra={"thread_id": thread_id})
            raise Refusal(404, "This URL was made for another call than the message is about.")
        dedup = await offload(len(body), _dedup, call_id, callback, body, headers)
        trace = read_traceparent(headers.items())
        accept_result = await self._accept(encode_callback(thread_id, call_id, callback, body, dedup, trace))
        if accept_result in (AcceptResult.ACCEPTED, AcceptResult.DUPLICATE):
            return
        if isinstance(callback, ToolResult) and await self._has_ended(thread_id, call_id):
            log.info("a further result is ignored", extra={"thread_id": thread_id, "call_id": call_id})
            return
        # CB-8, SUB-15, SUB-18
        log.info("a callback is discarded: %s", accept_result, extra={"thread_id": thread_id, "call_id": call_id})
        if isinstance(callback, ToolResult) and callback.subscription:
            await self._late.cancel(thread_id, call_id)
        raise Refusal(410, _NOTHING_LIVE)

    async def _has_ended(self, thread_id: str, call_id: str) -> bool:
        """Whether the call had its result a while ago: then its server repeats itself, in other words."""
        return await self._remembers(thread_id, ended_key(call_id))

    # What is refused for good

    async def _refuse_malformed(
        self, thread_id: str, call_id: str, body: bytes, headers: Headers, problem: str
    ) -> None:
        said = await offload(len(body), RefusedCallback.read, body)
        where = {"thread_id": thread_id, "call_id": call_id}
        log.warning("a callback is refused, because it is not valid: %s", _short(problem), extra=where)
        if said.type == "tool_result" and said.is_of(thread_id, call_id):
            reason = f"it is not a valid message ({_short(problem)})."
            await self._settle(thread_id, CallbackRefused(call_id, reason, "tool_result"), headers)

    async def refuse_too_large(
        self, call: CallbackTarget, beginning: bytes, headers: Headers, refusal: TooLarge
    ) -> None:
        """Tell the thread of a message that is too large, if it waits for it; return once that is durable. `beginning` is all we read."""
        thread_id, call_id = call.thread_id, call.call_id
        said = RefusedCallback.read(beginning)
        where = {"thread_id": thread_id, "call_id": call_id}
        log.warning("a callback is refused, because it is too large: %s", said.type or "of unknown type", extra=where)
        if said.type in (None, "tool_result", "subscription_event") and said.may_be_of(thread_id, call_id):
            reason = f"it is too large. {refusal.detail}"
            await self._settle(thread_id, CallbackRefused(call_id, reason, said.type or ""), headers)

    async def _settle(self, thread_id: str, refused: CallbackRefused, headers: Headers) -> None:
        given = _message_id(headers)
        dedup = None if given is None else f"refused/{refused.call_id}/{given}"
        await self._accept(encode_mail(thread_id, refused, dedup=dedup, live=refused.call_id))


def _short(problem: str) -> str:
    line = "; ".join(problem.splitlines())
    return line if len(line) <= _LONGEST_PROBLEM else line[: _LONGEST_PROBLEM - 1] + "…"


def _call_of(callback: Callback) -> str | None:
    match callback:
        case SubscriptionEvent():
            return callback.tool_call_id
        case ViewUpdate():
            return None
        case _:
            return callback.id


def _message_id(headers: Headers) -> str | None:
    given = headers.get(_MESSAGE_ID, b"")
    return given.decode("latin-1") if 0 < len(given) <= _LONGEST_ID else None


def _dedup(call_id: str, callback: Callback, body: bytes, headers: Headers) -> str | None:
    """What makes a repetition recognisable: the sender's message id. Without one, equal results are one; equal events are two (CB-9)."""
    given = _message_id(headers)
    if given is not None:
        return f"{call_id}/{given}"
    if isinstance(callback, ToolResult):
        return f"{call_id}/sha256:{hashlib.sha256(body).hexdigest()}"
    return None
