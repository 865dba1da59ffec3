"""Ways to break the server. Whoever looks for races must notice each of them, or looks in vain."""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

from rapkit.delivery.outbox_sender import DeliveryOutcome, FollowUp, OutboxSender
from rapkit.delivery.retry import PostKind
from rapkit.errors import StoreError
from rapkit.mailbox import Claim, Commit, Outgoing, TakenPost
from rapkit.server.calls.call_runner import CallRunner
from rapkit.server.claimed_box import ClaimedBox
from rapkit.server.engine import ToolsetEngine
from rapkit.server.interaction.questions import Questions, StoredQuestion
from rapkit.server.invocation import StoredCall, call_kind, subscription_kind
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions import event_publisher, subscription_runner
from rapkit.server.subscriptions.subscription_runner import SubscriptionRunner
from rapkit.server.subscriptions.subscription_state import SubscriptionState
from rapkit.server.subscriptions.topics import Topics
from rapkit.stores.sqlite import statements

Patch = AbstractContextManager[Any]


class Breakage(NamedTuple):
    """`says` is what is said by whoever notices."""

    what: str
    broken: Callable[[], Patch]
    says: str


def _statement(name: str, old: str, new: str) -> Callable[[], Patch]:
    statement: str = getattr(statements, name)
    assert old in statement
    return lambda: patch.object(statements, name, statement.replace(old, new))


def _abort_nothing() -> Patch:
    async def abort(_outbox_sender: OutboxSender, _ids: Sequence[str]) -> None: ...

    return patch.object(OutboxSender, "abort", abort)


def _abort_only_what_is_under_way() -> Patch:
    original = OutboxSender.abort

    async def abort(outbox_sender: OutboxSender, ids: Sequence[str]) -> None:
        await original(outbox_sender, [id for id in ids if id in outbox_sender._under_way])

    return patch.object(OutboxSender, "abort", abort)


def _final_event_forgets() -> Patch:
    original = ClaimedBox.commit

    async def commit(claimed_box: ClaimedBox, commit: Commit) -> None:
        ends = commit.status == event_publisher.ENDED
        await original(claimed_box, replace(commit, status=None, forget_for=0) if ends else commit)

    return patch.object(ClaimedBox, "commit", commit)


def _cursor_is_not_written() -> Patch:
    original = SubscriptionState.to_state
    return patch.object(SubscriptionState, "to_state", lambda sub_state: original(replace(sub_state, cursor=None)))


def _confirmation_has_a_lane_of_its_own() -> Patch:
    original = ClaimedBox.post

    def post(claimed_box: ClaimedBox, body: bytes, kind: PostKind = PostKind.CALLBACK, **more: Any) -> Outgoing:
        return original(claimed_box, body, kind, not_before=more.get("not_before"))

    return patch.object(ClaimedBox, "post", post)


def _answers_do_not_count_as_progress() -> Patch:
    async def resume(_questions: Questions) -> None: ...

    return patch.object(Questions, "_resume", resume)


def _any_number_is_a_choice() -> Patch:
    def answered(question: StoredQuestion, selected: int) -> StoredQuestion:
        return replace(question, answer=selected % len(question.choices))

    return patch.object(StoredQuestion, "answered", answered)


def _nobody_hears_that_nobody_listens() -> Patch:
    original = SubscriptionRunner.report

    async def report(self: SubscriptionRunner, taken: TakenPost, fate: DeliveryOutcome) -> FollowUp:
        return await original(self, taken, fate) if taken.outgoing.kind == PostKind.FINAL else FollowUp()

    return patch.object(SubscriptionRunner, "report", report)


def _what_left_after_nobody_listened_goes_on() -> Patch:
    async def stop(self: SubscriptionRunner, lane: str) -> None:
        with contextlib.suppress(StoreError):
            box = await self._store.box(lane)
            if box is not None and box.parent is not None and box.name is not None:
                stopped = await self._store.stop([box.kind], box.parent, box.name, 0)
                self.cancel(stopped.boxes)

    return patch.object(SubscriptionRunner, "_stop", stop)


def _acknowledged_before_it_is_written() -> Patch:
    original = CallRunner.accept
    accepting: set[asyncio.Task[bool]] = set()

    def forget(done: "asyncio.Task[bool]") -> None:
        accepting.discard(done)
        if not done.cancelled():
            done.exception()

    async def accept(worker: CallRunner, call: StoredCall) -> bool:
        task = asyncio.create_task(original(worker, call))
        accepting.add(task)
        task.add_done_callback(forget)
        return True

    return patch.object(CallRunner, "accept", accept)


def _nobody_unsubscribes() -> Patch:
    return patch.object(subscription_runner, "unsubscribe_mail", lambda *_: [])


class _TwoCommits:
    """A store that takes mail away before it writes what follows from it."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, claim: Claim, commit: Commit) -> None:
        await self._store.commit(claim, Commit(consumed=commit.consumed, keep=True))
        await self._store.commit(claim, replace(commit, consumed=()))


def _taken_from_a_topic_before_it_is_passed_on() -> Patch:
    original = Topics.__init__

    def init(self: Any, services: ToolsetServices) -> None:
        original(self, services)
        self._store = _TwoCommits(self._store)

    return patch.object(Topics, "__init__", init)


def _generators_go_on() -> Patch:
    def cancel(_subscriptions: SubscriptionRunner, _boxes: tuple[str, ...]) -> None: ...

    return patch.object(SubscriptionRunner, "cancel", cancel)


def _close_spares_subscriptions() -> Patch:
    async def close(engine: ToolsetEngine, caller: str, thread_id: str) -> None:
        await engine._stop([call_kind(engine.toolset)], caller, thread_id, None)

    return patch.object(ToolsetEngine, "close_thread", close)


def _close_spares_what_is_kept() -> Patch:
    async def close(engine: ToolsetEngine, caller: str, thread_id: str) -> None:
        await engine._stop([call_kind(engine.toolset), subscription_kind(engine.toolset)], caller, thread_id, None)

    return patch.object(ToolsetEngine, "close_thread", close)


_TIE = "epoch = ? AND worker = ?"

AT_ONCE = [
    Breakage("a cancel that lets POSTs under way go on", _abort_nothing, "SUB-5"),
    Breakage(
        "a cancel that leaves what is queued",
        _statement("DROP_LANES", "AND dead_at IS NULL", "AND dead_at IS NULL AND worker IS NOT NULL"),
        "SUB-5",
    ),
    Breakage("a commit without a fence", _statement("FENCE", _TIE, "? > 0 AND ? > ''"), "SUB-5"),
    Breakage("a cursor that is not written with its event", _cursor_is_not_written, "semantics 25"),
    Breakage("a confirmation in a lane of its own", _confirmation_has_a_lane_of_its_own, "SUB-2"),
    Breakage("calls that are forgotten", _statement("CREATE_BOX", "key = ''", "key = 'x'"), "INV-17"),
]
"""What is noticed in the first run or the second."""

SOONER_OR_LATER = [
    Breakage("a cancel that misses what was just taken", _abort_only_what_is_under_way, "SUB-5"),
    Breakage("a cancel that lets the generator go on", _generators_go_on, "still runs"),
    Breakage("a final event that forgets its subscription", _final_event_forgets, "SUB-5"),
    Breakage("a lane in which all are due", _statement("INSERT_OUTGOING", "NOT EXISTS", "1 OR EXISTS"), "semantics 18"),
    Breakage("cancels that are forgotten", _statement("CREATE_BOX", "'stopped/'", "'x/'"), "semantics 20"),
    Breakage("letters that are forgotten", _statement("BOX_FOR_MAIL", "?2 IS NOT NULL", "0"), "CHO-2"),
    Breakage("an acknowledgement before the commit", _acknowledged_before_it_is_written, "INV-11"),
    Breakage("an answer that does not count as progress", _answers_do_not_count_as_progress, "took effect"),
    Breakage("an answer that is none of the choices, and counts", _any_number_is_a_choice, "CHO-2"),
    Breakage("nobody hears that nobody listens", _nobody_hears_that_nobody_listens, "semantics 18"),
    Breakage("nobody listens, and what just left goes on", _what_left_after_nobody_listened_goes_on, "SUB-5"),
    Breakage("nobody unsubscribes", _nobody_unsubscribes, "still subscribed"),
    Breakage("events lost on their way from a topic", _taken_from_a_topic_before_it_is_passed_on, "not told"),
    Breakage("a close that spares subscriptions", _close_spares_subscriptions, "SUB-5"),
    Breakage("a close that spares what is kept", _close_spares_what_is_kept, "is closed, and its box"),
]
