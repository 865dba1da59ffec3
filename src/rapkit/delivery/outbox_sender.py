"""Deliver the outbox: take due POSTs, send them, and settle each by its response.

An origin that does not answer holds up only itself: it can have so many POSTs in hand, and while it has them nothing more is taken for it.
Origins that have not answered lately cannot hold up the others together either: some places are kept for origins that have.
"""

import asyncio
import contextlib
import logging
import math
import random
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from rapkit.delivery.http_client import HttpResponse, Poster
from rapkit.delivery.retry import POLICIES, PostKind, RetryDecision, RetryPolicy, retry_decision
from rapkit.delivery.signatures import headers
from rapkit.errors import DeliveryError, ForbiddenTarget, RapkitError, StoreError
from rapkit.mailbox import MAIL_BYTES, OUTBOX, Fact, NewMail, Outcome, Outgoing, Quota, Settlement, Store, TakenPost
from rapkit.tracing import HEADER, Span, Tracing
from rapkit.work.poller import Poller
from rapkit.work.store_retry import retry_store_operation

_PAUSE_BEFORE_SETTLING_AGAIN = 0.5
_MOST_ABORTED = 10_000
_MOST_REMEMBERED = 1024
_LOOK_AGAIN_AFTER = 0.02
_LOOK_AT_ROWS_EVERY = 0.25
_SMALL = 64 * 1024
_NOT_IMPLEMENTED = (404, 405, 410, 501)

log = logging.getLogger("rapkit.delivery")


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The final outcome of a POST. `status` is None when there was no response; `sent_at` is when its last attempt began."""

    outcome: Outcome
    status: int | None
    problem: str | None
    sent_at: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What is written together with the final outcome of a POST."""

    new_mail: NewMail | None = None
    fact: Fact | None = None


Report = Callable[[TakenPost, DeliveryOutcome], Awaitable[FollowUp]]
"""Called when a POST has ended for good; says what is to be written together with that."""


async def _no_consequence(_taken: TakenPost, _fate: DeliveryOutcome) -> FollowUp:
    return FollowUp()


Prepare = Callable[[TakenPost], Awaitable[tuple[bytes, Mapping[str, str]]]]
"""The body to send and headers to send with it, made right before each attempt, for what is secret and must not be stored.

A `RapkitError` means that it can never be sent: the POST is given up with that text, which is stored in clear and logged.
"""


async def _as_stored(taken: TakenPost) -> tuple[bytes, Mapping[str, str]]:
    return taken.outgoing.body, {}


class _Unsendable(Exception):
    """A POST that could not be prepared, and never can."""


@dataclass(frozen=True, slots=True)
class SendLimits:
    """How many POSTs may be under way: `total`, about `per_origin` to one origin, `per_silent_origin` to one that did not answer lately.

    An origin that was not asked before gets as many as a silent one until it answers. An eighth of the `total` is for origins that have
    answered lately. All silent origins together have at most a quarter of the `total` in hand. The fewer places are free the fewer one
    origin gets, so that busy origins leave places to others.

    A POST that has waited for its answer for more than `patience` seconds gives its place among the `total` back, and counts as one to a
    silent origin: so an origin that answers slowly gets its messages once, and does not take the places of the others. The views of an
    origin are counted apart from its other messages, so that they do not take their places either.

    While those in hand have `bytes` or more together, only small ones are taken besides.
    """

    total: int = 1024
    per_origin: int = 64
    per_silent_origin: int = 4
    patience: float = 10.0
    bytes: int = 8 * MAIL_BYTES

    @property
    def reserve(self) -> int:
        """Places for origins that have answered lately."""
        return self.total // 8

    @property
    def silent(self) -> int:
        """POSTs in hand to all silent origins together."""
        return max(self.total // 4, 1)

    def share_of(self, free: int) -> int:
        """How many POSTs one origin may have in hand while so many places are free: the fewer are free, the fewer."""
        return math.ceil(self.per_origin * free / self.total)


_Share = tuple[str, bool]
"""An origin, and whether its views are meant or its other messages."""


def _share(outgoing: Outgoing) -> _Share:
    return (outgoing.origin, outgoing.latest)


def _remember(shares: "OrderedDict[_Share, None]", share: _Share) -> None:
    shares[share] = None
    shares.move_to_end(share)
    while len(shares) > _MOST_REMEMBERED:
        shares.popitem(last=False)  # other parties can name any number of origins


class OutboxSender:
    """Delivers one store's outbox under a worker's lease."""

    def __init__(
        self,
        store: Store,
        client: Poster,
        worker: str,
        *,
        policies: Mapping[PostKind, RetryPolicy] = POLICIES,
        send_limits: SendLimits | None = None,
        secrets: Sequence[str] = (),
        prepare: Prepare = _as_stored,
        report: Report = _no_consequence,
        on_attempt: Callable[[TakenPost, Settlement], None] = lambda _taken, _settlement: None,
        tracing: Tracing | None = None,
        clock: Callable[[], float] = time.time,
        random_fraction: Callable[[], float] = random.random,
    ) -> None:
        self._store = store
        self._client = client
        self._worker = worker
        self._policies = policies
        self._send_limits = send_limits or SendLimits()
        self._secrets = secrets
        self._prepare = prepare
        self._report = report
        self._on_attempt = on_attempt
        self._tracing = tracing or Tracing()
        self._clock = clock
        self._random_fraction = random_fraction
        self._places: Counter[_Share] = Counter()
        self._bytes: Counter[_Share] = Counter()
        self._waiting: Counter[_Share] = Counter()
        self._answering: OrderedDict[_Share, None] = OrderedDict()
        self._silent: OrderedDict[_Share, None] = OrderedDict()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._taken_at: dict[str, float] = {}
        self._on_the_wire: dict[str, tuple[TakenPost, asyncio.Task[None]]] = {}
        self._aborted: dict[str, None] = {}
        self._poller = Poller(store, OUTBOX, self._send_limits.total, self._take, self._deliver)

    @property
    def poller(self) -> Poller[TakenPost]:
        """The poller behind it, for callers that want to deliver only what is due."""
        return self._poller

    async def run(self) -> None:
        """Deliver until cancelled."""
        watching = asyncio.create_task(self._watch())
        try:
            await self._poller.run()
        finally:
            watching.cancel()

    async def drain(self, patience: float) -> None:
        """Let the POSTs under way end; the next sender delivers again what cannot."""
        await self._poller.drain(patience)

    async def abort(self, ids: Sequence[str]) -> None:
        """Stop these POSTs if this sender has them, and wait until they have stopped. They were deleted, so no sender sends them again."""
        tasks = [task for id in ids if (task := self._under_way.get(id))]
        # What was taken in the same flush may be on its way to us still; what is in others' hands never comes.
        self._aborted.update(dict.fromkeys(id for id in ids if id not in self._under_way))
        while len(self._aborted) > _MOST_ABORTED:
            del self._aborted[next(iter(self._aborted))]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def healthy(self) -> bool:
        """Whether the outbox can be read."""
        return self._poller.healthy

    @property
    def under_way(self) -> int:
        """How many POSTs are being made now."""
        return len(self._under_way)

    @property
    def silent_origins(self) -> int:
        """How many origins have left their last POST without an answer."""
        return len({origin for origin, _ in self._silent})

    @contextlib.contextmanager
    def reserve_for(self, outgoing: Sequence[Outgoing]) -> Iterator[str | None]:
        """The name under which these POSTs may be taken at once and handed to us; None if there are none, or no room for them.

        As long as the context lasts their places are kept.
        """
        first_of_lanes = {one.lane: _share(one) for one in outgoing}  # the others of a lane wait for it
        wanted = Counter(first_of_lanes.values())
        if any(len(one.body) > _SMALL for one in outgoing) and self._has_many_bytes:
            yield None
            return
        if not wanted or not self._has_room(wanted) or not self._poller.reserve(wanted.total()):
            yield None
            return
        self._places.update(wanted)
        try:
            yield self._worker
        finally:
            for share in wanted.elements():
                self._one_less(share)
            self._poller.release(wanted.total())

    def submit(self, taken: Sequence[TakenPost], since: float) -> None:
        """Deliver what was taken under our name, by a commit that was begun at that time of the event loop."""
        self._taken_at.update((one.outgoing.id, since) for one in taken)
        for one in taken:
            self._one_more(one.outgoing)
            self._poller.submit(one)

    def _has_room(self, wanted: Mapping[_Share, int]) -> bool:
        full = any(map(self._is_silent, wanted)) and self._silent_is_full()
        return all(self._room(share, full) >= count for share, count in wanted.items())

    def _room(self, share: _Share, silent_is_full: bool) -> int:
        """How many more POSTs of a share may be in hand."""
        if silent_is_full and self._is_silent(share):
            return 0
        most = self._most_unproven() if self._is_unproven(share) else self._most_answering()
        return most - self._places[share]

    def _is_silent(self, share: _Share) -> bool:
        return share in self._silent or self._waiting[share] >= self._send_limits.per_silent_origin

    def _is_unproven(self, share: _Share) -> bool:
        return share not in self._answering or self._is_silent(share)

    def _silent_is_full(self) -> bool:
        silent = [share for share in self._places if self._is_silent(share)]
        in_progress = sum(self._places[share] for share in silent)
        in_bytes = sum(self._bytes[share] for share in silent)
        return in_progress >= self._send_limits.silent or in_bytes >= self._send_limits.bytes // 4

    @property
    def _has_many_bytes(self) -> bool:
        return self._bytes.total() >= self._send_limits.bytes

    def _most_answering(self) -> int:
        return self._send_limits.share_of(self._poller.free)

    def _most_unproven(self) -> int:
        free, send_limits = self._poller.free, self._send_limits
        if free <= send_limits.reserve:
            return 0
        return min(send_limits.per_silent_origin, send_limits.share_of(free))

    def _quota(self) -> Quota[_Share]:
        """How much may be taken of each share. Of those not listed nothing is in hand, and they are unproven."""
        listed = dict.fromkeys(self._answering, self._most_answering())
        if full := self._silent_is_full():
            listed.update(dict.fromkeys(self._silent, 0))
        listed.update((share, self._room(share, full)) for share in self._places)
        return Quota(listed, others=self._most_unproven())

    async def _take(self, limit: int) -> list[TakenPost]:
        above_reserve = self._poller.free - self._send_limits.reserve
        if above_reserve > 0:
            limit = min(limit, above_reserve)  # so that this round leaves the reserve to the next
        since = asyncio.get_running_loop().time()
        room = min(MAIL_BYTES, self._send_limits.bytes - self._bytes.total())
        if room > 0:
            taken = await self._store.take(self._worker, limit, self._quota(), room)
        else:
            taken = await self._store.take(self._worker, limit, self._quota(), largest=_SMALL)
        self._taken_at.update((one.outgoing.id, since) for one in taken)
        # Counted here, before the next round asks.
        for one in taken:
            self._one_more(one.outgoing)
        return taken

    async def _deliver(self, taken: TakenPost) -> None:
        outgoing = taken.outgoing
        task = asyncio.current_task()
        assert task is not None
        self._under_way[outgoing.id] = task  # if it was taken twice, the first is no longer ours
        taken_at = self._taken_at.pop(outgoing.id, None)
        try:
            if outgoing.id in self._aborted:
                del self._aborted[outgoing.id]
                return
            if not await self._is_ours(taken, taken_at):
                return  # another process has deleted it, or taken it over
            settlement = await self._attempt(taken)
            if not outgoing.once:
                await self._settle(taken, settlement)
            self._on_attempt(taken, settlement)  # last, so that nothing depends on the callback
        finally:
            self._one_less(_share(outgoing), len(outgoing.body))
            if self._under_way.get(outgoing.id) is task:
                del self._under_way[outgoing.id]

    async def _is_ours(self, taken: TakenPost, taken_at: float | None) -> bool:
        """Whether the POST may be made: its row is looked at, unless that was done a moment ago, when it was taken."""
        if taken.outgoing.once:
            return True
        if taken_at is not None and asyncio.get_running_loop().time() - taken_at < _LOOK_AGAIN_AFTER:
            return True
        return taken.outgoing.id in await retry_store_operation(lambda: self._store.held([taken]))

    async def _watch(self) -> None:
        """Abort POSTs that another process has deleted while they are on the wire (semantics 20)."""
        while True:
            before = dict(self._on_the_wire)
            await asyncio.sleep(_LOOK_AT_ROWS_EVERY)
            waiting = [wait for id, wait in before.items() if self._on_the_wire.get(id) is wait]
            if not waiting:
                continue
            try:
                held = await self._store.held([taken for taken, _ in waiting])
            except StoreError as error:
                log.debug("cannot look at the POSTs under way: %s", error)
                continue
            for wait in waiting:
                taken, task = wait
                # Only one that still waits for its answer: after that its row may have been deleted by itself.
                if taken.outgoing.id not in held and self._on_the_wire.get(taken.outgoing.id) is wait:
                    task.cancel()

    def _one_more(self, outgoing: Outgoing) -> None:
        self._places[_share(outgoing)] += 1
        self._bytes[_share(outgoing)] += len(outgoing.body)

    def _one_less(self, share: _Share, size: int = 0) -> None:
        self._places[share] -= 1
        self._bytes[share] -= size
        if not self._places[share]:
            del self._places[share], self._bytes[share]  # other parties can name any number of origins

    def _has_answered(self, share: _Share) -> None:
        self._silent.pop(share, None)
        _remember(self._answering, share)

    def _has_not_answered(self, share: _Share) -> None:
        self._answering.pop(share, None)
        _remember(self._silent, share)

    @contextlib.contextmanager
    def _waiting_for_the_answer(self, taken: TakenPost) -> Iterator[None]:
        """While the answer is awaited the row is watched, and after a while the POST counts against its origin's silent places alone."""
        share, task = _share(taken.outgoing), asyncio.current_task()
        assert task is not None
        slow = False

        def count_apart() -> None:
            nonlocal slow
            slow = True
            self._waiting[share] += 1
            if share not in self._answering:
                self._has_not_answered(share)
            self._poller.exclude_from_limit(task)

        timer = asyncio.get_running_loop().call_later(self._send_limits.patience, count_apart)
        wait = (taken, task)
        if not taken.outgoing.once:  # then it has no row any more
            self._on_the_wire[taken.outgoing.id] = wait
        try:
            yield
        finally:
            timer.cancel()
            if self._on_the_wire.get(taken.outgoing.id) is wait:
                del self._on_the_wire[taken.outgoing.id]
            if slow:
                self._waiting[share] -= 1
                if not self._waiting[share]:
                    del self._waiting[share]

    async def _attempt(self, taken: TakenPost) -> Settlement:
        outgoing = taken.outgoing
        with self._tracing.post(
            outgoing.traceparent,
            kind=outgoing.kind,
            message_id=outgoing.id,
            origin=outgoing.origin,
            attempt=taken.attempts,
        ) as span:
            settlement = await self._post(taken, span)
            span.ended(settlement.outcome)
        return settlement

    async def _post(self, taken: TakenPost, span: Span) -> Settlement:
        outgoing = taken.outgoing
        sent_at = self._clock()
        try:
            answer = await self._send(taken, span)
        except (ForbiddenTarget, _Unsendable) as error:
            return await self._end(taken, DeliveryOutcome(Outcome.DEAD, None, str(error), sent_at))
        except DeliveryError as error:
            self._has_not_answered(_share(outgoing))
            return await self._try_again(taken, None, str(error), sent_at)
        except Exception as error:
            # A mistake of ours: a person must know, and the next version may get it through.
            log.critical("a message could not be sent", exc_info=error, extra={"message_id": outgoing.id})
            return await self._try_again(
                taken, None, f"{outgoing.origin}: it could not be sent; the log says why", sent_at
            )
        self._has_answered(_share(outgoing))
        span.answered(answer.status)
        if outgoing.kind == PostKind.NOTICE and answer.status in _NOT_IMPLEMENTED:
            # Notices are optional, and many servers have no endpoint for them: no reason for a warning.
            problem = f"{outgoing.origin} answered {answer.status} to a notice"
            log.debug("%s", problem, extra={"message_id": outgoing.id})
            return Settlement(Outcome.DEAD, problem)
        match retry_decision(answer.status):
            case RetryDecision.DELIVERED:
                return await self._end(taken, DeliveryOutcome(Outcome.DELIVERED, answer.status, None, sent_at))
            case RetryDecision.GONE if outgoing.kind == PostKind.CANCELLED:
                # no call waits for it, as it should be
                return await self._end(taken, DeliveryOutcome(Outcome.DELIVERED, answer.status, None, sent_at))
            case RetryDecision.RETRY:
                return await self._try_again(taken, answer, f"{outgoing.origin} answered {answer.status}", sent_at)
            case RetryDecision.GONE | RetryDecision.REFUSED:
                problem = f"{outgoing.origin} answered {answer.status}"
                return await self._end(
                    taken, DeliveryOutcome(Outcome.DEAD, answer.status, problem, sent_at), answer.reason
                )

    async def _send(self, taken: TakenPost, span: Span) -> HttpResponse:
        outgoing = taken.outgoing
        try:
            body, more = await self._prepare(taken)
        except DeliveryError:
            raise
        except RapkitError as error:
            raise _Unsendable(str(error)) from error
        stamp = {**more, **headers(outgoing.id, self._clock(), body, self._secrets)}
        if span.traceparent:
            stamp[HEADER] = span.traceparent
        with self._waiting_for_the_answer(taken):
            return await self._client.post(outgoing.url, body, stamp)

    async def _try_again(
        self, taken: TakenPost, answer: HttpResponse | None, problem: str, sent_at: float
    ) -> Settlement:
        policy = self._policies[PostKind(taken.outgoing.kind)]
        retry_after = answer.retry_after if answer else None
        delay = policy.delay(taken.attempts, taken.age, self._random_fraction(), retry_after)
        if delay is None:
            status = answer.status if answer else None
            attempts = f"{taken.attempts} attempt{'s' * (taken.attempts != 1)}"
            problem = f"{problem.rstrip('.')}; given up after {attempts}"
            return await self._end(taken, DeliveryOutcome(Outcome.DEAD, status, problem, sent_at))
        log.info(
            "%s; attempt %d, next in %.1f s",
            problem.rstrip("."),
            taken.attempts,
            delay,
            extra={"message_id": taken.outgoing.id},
        )
        return Settlement(Outcome.RETRY, problem, delay)

    async def _end(self, taken: TakenPost, delivery_outcome: DeliveryOutcome, reason: str | None = None) -> Settlement:
        if delivery_outcome.outcome is Outcome.DEAD and taken.outgoing.latest:
            # A view is not worth sending later: the next one, or the result, tells more.
            log.info("not shown: %s", delivery_outcome.problem, extra={"message_id": taken.outgoing.id})
            return Settlement(Outcome.DROPPED, delivery_outcome.problem)
        if delivery_outcome.outcome is Outcome.DEAD:
            # The reason is for the operator. It is not part of the outcome, which threads and models see.
            said = f"; it says: {reason}" if reason else ""
            log.warning("undeliverable: %s%s", delivery_outcome.problem, said, extra={"message_id": taken.outgoing.id})
        consequence = await self._report(taken, delivery_outcome)
        return Settlement(
            delivery_outcome.outcome, delivery_outcome.problem, new_mail=consequence.new_mail, fact=consequence.fact
        )

    async def _settle(self, taken: TakenPost, settlement: Settlement) -> None:
        while True:
            try:
                return await self._store.settle(taken, settlement)
            except StoreError as error:
                # Not settled means delivered again once our lease ends; better to insist while it lasts.
                log.error("cannot settle %s: %s", taken.outgoing.id, error)
                await asyncio.sleep(_PAUSE_BEFORE_SETTLING_AGAIN)
