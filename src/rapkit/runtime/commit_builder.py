"""Translate a step of the kernel into a commit of the store."""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from rapkit.kernel.catalog import Catalog
from rapkit.kernel.effects import (
    ClearView,
    HideAuthorization,
    Invoke,
    MakeChild,
    SendChoice,
    SetTimer,
    ShowAuthorization,
    ShowView,
    Spawn,
    Step,
    TellCancelled,
    TellClosed,
    Withdraw,
    Write,
)
from rapkit.kernel.entries import Answered, Happened, dump_entry
from rapkit.kernel.incoming import EventForChild, Task
from rapkit.kernel.thread import Thread, dump_thread
from rapkit.mailbox import Commit, Entry, NewBox, NewMail, Outgoing, Record, Timer
from rapkit.runtime.callback_signatures import UNSIGNED
from rapkit.runtime.dispatch import Dispatch, lane_of
from rapkit.runtime.mail_codec import LIVE, REMEMBERED, encode_mail, ended_key
from rapkit.runtime.toolsets import THREAD
from rapkit.tracing import current_traceparent

OAUTH = "oauth"
"""Records of where the user authorises a tool, by call."""

VIEW = "view"
"""Records of the latest content of views, by their type."""

FindEvent = Callable[[int], Awaitable[Happened]]
"""An event of the thread's journal by its number, for those that were stored before this step."""


@dataclass(slots=True)
class _Parts:
    put: list[Record] = field(default_factory=list)
    drop: list[tuple[str, str]] = field(default_factory=list)
    timers: list[Timer] = field(default_factory=list)
    outgoing: list[Outgoing] = field(default_factory=list)
    unsend: list[str] = field(default_factory=list)
    spawn: list[NewBox] = field(default_factory=list)
    new_mails: list[NewMail] = field(default_factory=list)


class CommitBuilder:
    """Builds the commits of one thread."""

    def __init__(self, dispatch: Dispatch, find_event: FindEvent) -> None:
        self._dispatch = dispatch
        self._find_event = find_event

    async def make(self, before: Thread, step: Step, catalog: Catalog | None, **rest: Any) -> Commit:
        """Everything that follows from a step, in one commit; `rest` are further fields of it.

        `catalog` is needed if the step invokes anything.
        """
        parts = _Parts()
        for call_id in sorted(step.thread.live_calls - before.live_calls):
            parts.put.append(Record(LIVE, call_id, traceparent=current_traceparent()))
        for call_id in sorted(before.live_calls - step.thread.live_calls):
            parts.drop.append((LIVE, call_id))
        parts.drop += [(UNSIGNED, call_id) for call_id in _signed_again(before, step)]
        for effect in step.effects:
            await self._carry_out(effect, before, step, catalog, parts)
        return Commit(
            entries=[Entry(entry.kind, dump_entry(entry)) for entry in step.entries],
            state=dump_thread(step.thread),
            status=step.thread.status,
            put=parts.put,
            drop=parts.drop,
            timers=parts.timers,
            outgoing=parts.outgoing,
            unsend=parts.unsend,
            remember={ended_key(call_id): REMEMBERED for call_id in _ended(before, step)},
            spawn=parts.spawn,
            new_mails=parts.new_mails,
            traceparent=current_traceparent(),
            **rest,
        )

    async def _carry_out(
        self, effect: object, before: Thread, step: Step, catalog: Catalog | None, parts: _Parts
    ) -> None:
        thread = step.thread
        match effect:
            case Invoke(call_id):
                assert catalog is not None
                parts.outgoing.append(self._dispatch.invocation(thread, call_id, thread.pending[call_id], catalog))
            case Withdraw(call_id):
                parts.unsend.append(lane_of(thread.id, call_id))
            case TellCancelled(call_id, server):
                parts.outgoing += self._dispatch.cancelled(thread.id, call_id, server)
            case TellClosed():
                parts.outgoing += self._dispatch.closed(thread.id)
            case SendChoice(call_id, server, response_url, selected):
                parts.outgoing.append(self._dispatch.choice(thread.id, call_id, server, response_url, selected))
            case Write(relative, message, once):
                parts.new_mails.append(encode_mail(relative, message, dedup=once))
            case Spawn(child, task):
                parts.spawn.append(_child_box(child))
                parts.new_mails.append(encode_mail(child.id, Task(thread.id, task), dedup="began"))
            case MakeChild(child, seq, arguments):
                event = await self._event(seq, before, step)
                parts.spawn.append(_child_box(child))
                parts.new_mails.append(_first_mail(thread.id, child, event, arguments))
            case ShowAuthorization(call_id, auth_url):
                parts.put.append(Record(OAUTH, call_id, auth_url.encode()))
            case HideAuthorization(call_id):
                parts.drop.append((OAUTH, call_id))
            case ShowView(view_type, content):
                parts.put.append(Record(VIEW, view_type, to_json(content)))
            case ClearView(view_type):
                parts.drop.append((VIEW, view_type))
            case SetTimer(key, at):
                parts.timers.append(Timer(key, at))

    async def _event(self, seq: int, before: Thread, step: Step) -> Happened:
        index = seq - before.length - 1
        if index < 0:
            return await self._find_event(seq)
        event = step.entries[index]
        assert isinstance(event, Happened)
        return event


def _signed_again(before: Thread, step: Step) -> list[str]:
    """The calls of which no refused callback is to be shown any more: a later one was taken, or none will be."""
    taken = {each.call_id for each in step.entries if isinstance(each, Answered | Happened)}
    return sorted(taken | (before.live_calls - step.thread.live_calls))


def _ended(before: Thread, step: Step) -> list[str]:
    """The calls that have had all they will: their result and, if they went on as subscriptions, their last event."""
    if step.thread.closed:
        return []
    answered = {entry.call_id for entry in step.entries if isinstance(entry, Answered) and entry.by == "tool"}
    cancelled = {effect.call_id for effect in step.effects if isinstance(effect, TellCancelled)}
    gone = before.live_calls - step.thread.live_calls - cancelled
    return sorted(gone & (answered | before.subscriptions.keys()))


def _child_box(child: Thread) -> NewBox:
    return NewBox(child.id, THREAD, dump_thread(child), parent=child.parent, root=child.root, idle=True)


def _first_mail(parent: str, child: Thread, event: Happened, arguments: dict[str, Any]) -> NewMail:
    message = EventForChild(parent, event.call_id, event.name, arguments, event.text, event.final)
    return encode_mail(child.id, message, dedup="began")


def origins(outgoing: Iterable[Outgoing]) -> set[str]:
    """Where POSTs go."""
    return {each.origin for each in outgoing}
