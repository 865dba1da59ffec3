"""What tools say about their calls: checked, made durable, then acknowledged (CB-7, CB-10, CB-14)."""

import hashlib
import logging
from collections.abc import Awaitable, Callable, Mapping

from rapkit.errors import InvalidMessage
from rapkit.http.requests import Refusal
from rapkit.mailbox import Letter, Reception
from rapkit.protocol import Callback, SubscriptionEvent, ToolResult, ViewUpdate, parse_callback
from rapkit.runtime.addresses import Addresses
from rapkit.runtime.late_subscriptions import LateSubscriptions
from rapkit.runtime.letters import callback_letter
from rapkit.tracing import incoming

_MESSAGE_ID = b"webhook-id"
_LONGEST_ID = 256

log = logging.getLogger("rapkit.callbacks")

_NOTHING_LIVE = (
    "Nothing waits for this: the call has its result, was cancelled, or its thread is closed. Do not send it again."
)


Accept = Callable[[Letter], Awaitable[Reception]]
"""Puts a letter into a thread's mail, durably."""


class Callbacks:
    """The door through which tools' messages come in."""

    def __init__(self, accept: Accept, addresses: Addresses, late: LateSubscriptions) -> None:
        self._accept = accept
        self._addresses = addresses
        self._late = late

    def knows(self, token: str) -> bool:
        """Whether a URL with this token was made by us."""
        return self._addresses.read(token) is not None

    async def accept(self, token: str, body: bytes, headers: Mapping[bytes, bytes]) -> None:
        """Return once the message is durable, or was before; else a `Refusal` says why not, and nothing has changed.

        The order is fixed: is it a message (400), is the URL one of ours and the message about its call (404), is that call live (404).
        """
        try:
            callback = parse_callback(body)
        except InvalidMessage as error:
            raise Refusal(400, str(error)) from None
        ids = self._addresses.read(token)
        if ids is None:
            raise Refusal(404, "There is nothing at this URL.")
        thread_id, call_id = ids
        if callback.group_id != thread_id or _call_of(callback) not in (None, call_id):
            log.warning("a callback for one call came to the URL of another", extra={"thread_id": thread_id})
            raise Refusal(404, "This URL was made for another call than the message is about.")
        dedup = _dedup(call_id, callback, body, headers)
        trace = incoming(headers.items())
        reception = await self._accept(callback_letter(thread_id, call_id, callback, body, dedup, trace))
        if reception not in (Reception.ACCEPTED, Reception.DUPLICATE):
            # CB-8, SUB-15, SUB-18
            log.info("a callback is discarded: %s", reception, extra={"thread_id": thread_id, "call_id": call_id})
            if isinstance(callback, ToolResult) and callback.subscription:
                await self._late.cancel(thread_id, call_id)
                raise Refusal(410, _NOTHING_LIVE)
            raise Refusal(404, _NOTHING_LIVE)


def _call_of(callback: Callback) -> str | None:
    match callback:
        case SubscriptionEvent():
            return callback.tool_call_id
        case ViewUpdate():
            return None
        case _:
            return callback.id


def _dedup(call_id: str, callback: Callback, body: bytes, headers: Mapping[bytes, bytes]) -> str | None:
    """What makes a repetition recognisable: the sender's message id. Without one, equal results are one; equal events are two (CB-9)."""
    given = headers.get(_MESSAGE_ID, b"")
    if 0 < len(given) <= _LONGEST_ID:
        return f"{call_id}/{given.decode('latin-1')}"
    if isinstance(callback, ToolResult):
        return f"{call_id}/sha256:{hashlib.sha256(body).hexdigest()}"
    return None
