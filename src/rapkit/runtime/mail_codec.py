"""Encode incoming messages of a thread as mail, and decode them.

The kind of a mail says what it is and, behind a slash, which call it is about, so that unreadable mail can still be reported
to the call that waits for it.
"""

from pydantic import TypeAdapter

from rapkit.delivery.retry import POLICIES
from rapkit.errors import RapkitError
from rapkit.kernel.incoming import (
    AnswerFor,
    AnswerUndelivered,
    CallbackRefused,
    CancelCall,
    ChildClosed,
    ChildReport,
    ChooseFor,
    CloseThread,
    EventForChild,
    Grant,
    Incoming,
    ParentMessage,
    SetAside,
    Task,
    Undelivered,
    UserMessage,
    WakeUp,
)
from rapkit.kernel.receive import call_of, name_of
from rapkit.mailbox import Mail, NewMail
from rapkit.protocol import Callback, ViewUpdate, parse_callback
from rapkit.protocol.callbacks import CALLBACKS
from rapkit.tracing import current_traceparent

REMEMBERED = max(policy.horizon for policy in POLICIES.values()) + 24 * 3600.0
"""Seconds for which a repetition is recognised: four days, a day longer than any sender of ours goes on trying."""

LIVE = "live"
"""Records of the calls of a thread that may still call back, by their ids."""

_OURS: dict[str, TypeAdapter[Incoming]] = {
    name: TypeAdapter(kind)
    for name, kind in (
        ("user", UserMessage),
        ("close", CloseThread),
        ("cancel", CancelCall),
        ("choice", ChooseFor),
        ("answer", AnswerFor),
        ("schedule", WakeUp),
        ("grant", Grant),
        ("undelivered", Undelivered),
        ("answer_undelivered", AnswerUndelivered),
        ("event_for_child", EventForChild),
        ("task", Task),
        ("parent", ParentMessage),
        ("report", ChildReport),
        ("child_closed", ChildClosed),
        ("refused", CallbackRefused),
    )
}


def encode_mail(thread_id: str, message: Incoming, *, dedup: str | None = None, live: str | None = None) -> NewMail:
    """Encode a message of the runtime to a thread; with `live` it is only wanted as long as that call is live."""
    name = name_of(message)
    call_id = call_of(message)
    return NewMail(
        box=thread_id,
        kind=name if call_id is None else f"{name}/{call_id}",
        body=_OURS[name].dump_json(message),
        dedup=dedup,
        needs=None if live is None else (LIVE, live),
        remember_for=REMEMBERED,
        traceparent=current_traceparent(),
    )


def encode_callback(
    thread_id: str, call_id: str, callback: Callback, body: bytes, dedup: str | None, traceparent: str
) -> NewMail:
    """What a tool server said about a live call, as it said it; if it names no trace, it is part of the call's.

    A view may come at any time while its thread is open (VIE-2), so that it needs no live call.
    """
    return NewMail(
        box=thread_id,
        kind=f"{callback.type}/{call_id}",
        body=body,
        dedup=dedup,
        needs=None if isinstance(callback, ViewUpdate) else (LIVE, call_id),
        remember_for=REMEMBERED,
        traceparent=traceparent,
    )


def ended_key(call_id: str) -> str:
    """The `dedup` under which it is remembered that a call has had its result, and all events: another result is a repetition."""
    return f"ended/{call_id}"


def decode_mail(mail: Mail) -> Incoming:
    """Decode mail; unreadable mail is decoded as `SetAside`."""
    name, _, call_id = mail.kind.partition("/")
    try:
        if name in CALLBACKS:
            return parse_callback(mail.body)
        return _OURS[name].validate_json(mail.body)
    except (RapkitError, ValueError, KeyError):
        return SetAside(name, "it cannot be read", call_id or None)


def set_aside(mail: Mail, reason: str) -> SetAside:
    """Mail that is set aside unread."""
    name, _, call_id = mail.kind.partition("/")
    return SetAside(name, reason, call_id or None)
