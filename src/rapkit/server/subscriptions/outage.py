"""The messages to a thread about a failing subscription: one per outage, and one more when it is given up (SUB-21).

What an exception says is for the log; the thread gets a reference to it (INV-16).
"""

import secrets

from rapkit.server.subscriptions.event import Occurrence

_DAY = 24 * 3600.0
_HOUR = 3600.0
_MINUTE = 60.0


def new_reference() -> str:
    """A reference under which the log has the exception."""
    return secrets.token_hex(4)


def outage_began(operation: str, reference: str) -> Occurrence:
    """The subscription fails and is tried again."""
    return _error(
        f"the subscription {operation} failed unexpectedly (reference {reference}). It is tried again, and events may come late until it "
        "recovers; you are not told of further failures before that."
    )


def given_up(operation: str, reference: str, seconds: float) -> Occurrence:
    """The subscription has failed for too long, and ends."""
    return _error(
        f"the subscription {operation} kept failing for {_duration(seconds)} (reference {reference}) and has ended. "
        "Tell the user, or subscribe again.",
        final=True,
    )


def event_lost(operation: str, reference: str) -> Occurrence:
    """What takes the place of an event that the subscription's function cannot handle."""
    return _error(
        f"the subscription {operation} could not handle an event (reference {reference}), which is left out. Tell the user."
    )


def _error(text: str, *, final: bool = False) -> Occurrence:
    return Occurrence(f"Error: {text}", None, associative=True, final=final)


def _duration(seconds: float) -> str:
    for unit, name in ((_DAY, "days"), (_HOUR, "hours"), (_MINUTE, "minutes")):
        if seconds >= 2 * unit:
            return f"{seconds / unit:.0f} {name}"
    return f"{seconds:.0f} seconds"
