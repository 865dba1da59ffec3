"""Schedules: messages sent to threads at times given by cron expressions.

Each schedule is a box of its own that knows the next time it is due. That one follows from the time before it and never from what the clock
says, so a clock that is set back has nothing sent twice, and what came due while no worker ran, or was leapt over, is sent late. The
messages and the next time are written in one commit: a worker that dies before it has sent nothing, one that dies after it has sent all.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace

from pydantic import TypeAdapter, ValidationError

from rapkit.errors import ConfigError, Fenced, StoreError
from rapkit.kernel.incoming import WakeUp
from rapkit.kernel.thread import Thread, dump_thread
from rapkit.mailbox import Claim, Commit, Mail, NewBox, NewMail, Store, Timer
from rapkit.protocol.fields import MAX_ID, Id
from rapkit.runtime.cron import Cron
from rapkit.runtime.mail_codec import encode_mail
from rapkit.runtime.toolsets import THREAD
from rapkit.work.poller import Poller
from rapkit.work.store_retry import retry_store_operation

SCHEDULE = "schedule"
"""The kind of the boxes that are schedules, and the topic on which they come due."""

_CONFIGURED = "configured"
_REMOVED = "removed"
_IN_USE = "open"
_NEXT = "next"
_AT_ONCE = 16
_PAGE = 100
_MOST_SENT = 100
_MOST_CAUGHT_UP = 1000
_LONGEST_NAME = 100
_WORDS_IN_NAME = 40
_PAUSE_WHEN_UNREADABLE = 3600.0
_PAUSE_WHEN_BROKEN = 5.0
_USER_ID: TypeAdapter[str] = TypeAdapter(Id)

log = logging.getLogger("rapkit.schedules")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A message that a thread gets whenever a cron expression is due in a time zone; `rapkit.runtime.cron` says when that is.

    All of them come to one thread, which is made for the first one, and again should it be closed; with `new_thread` each comes to a
    thread of its own. The threads are those of the user with `user_id`. A schedule is known by its `name`: under the same name it may be
    changed, and goes on in its thread. Without one it is called after what it says, and one that says something else is another one.
    """

    cron: str
    message: str
    _: KW_ONLY
    zone: str = "UTC"
    name: str = ""
    user_id: str | None = None
    new_thread: bool = False

    def __post_init__(self) -> None:
        """Refuse what cannot be, with a `ConfigError`."""
        Cron(self.cron, self.zone)
        if not self.message.strip():
            raise ConfigError(
                'A schedule needs a message, such as "Summarise the open pull requests.", and this one is empty.'
            )
        for what, text in (("name", self.name), ("message", self.message), ("user_id", self.user_id or "")):
            _check_unicode(what, text)
        if not self.name:
            said = [self.cron, self.zone, self.message, self.user_id, self.new_thread]
            words = " ".join(self.message.split())[:_WORDS_IN_NAME].strip()
            readable = "".join(each for each in words if each.isprintable())
            object.__setattr__(self, "name", f"{readable} ({_digest(said)[:6]})".strip())
        if len(self.name) > _LONGEST_NAME or not self.name.isprintable() or self.name != self.name.strip():
            raise ConfigError(
                f"{self.name[:_LONGEST_NAME]!r} cannot be the name of a schedule. It has 1 to {_LONGEST_NAME} characters on one line, "
                'like "morning report".'
            )
        if self.user_id is not None:
            _check_user_id(self.user_id)


def check_names(schedules: Sequence[Schedule]) -> None:
    """Refuse two schedules of one name: only one of them would be known."""
    names = [each.name for each in schedules]
    for schedule in schedules:
        if names.count(schedule.name) > 1:
            what = "are the same" if schedules.count(schedule) > 1 else f"have the name {schedule.name!r}"
            raise ConfigError(f"Two schedules {what}. Leave one out, or give each a name of its own.")


@dataclass(frozen=True, slots=True)
class _ScheduleState:
    """The stored state of a schedule: when it is due next, and to which thread it goes. A removed one is never due.

    A removed schedule is kept, not ended: a process that configures it again at the same moment has put mail into this box, which would be
    gone with it.
    """

    schedule: Schedule
    next: float | None
    thread: str | None = None
    removed: bool = False

    def configured(self, schedule: Schedule, at: float) -> "_ScheduleState":
        """How it stands when it was configured at a time; what has stayed the same is due when it was."""
        was = self.schedule
        same = not self.removed and (was.cron, was.zone) == (schedule.cron, schedule.zone)
        following = self.next if same else _cron(schedule).next_after(at)
        # A thread is its user's.
        return _ScheduleState(schedule, following, self.thread if was.user_id == schedule.user_id else None)


_SCHEDULE: TypeAdapter[Schedule] = TypeAdapter(Schedule)
_SCHEDULE_STATE: TypeAdapter[_ScheduleState] = TypeAdapter(_ScheduleState)


class Schedules:
    """Keeps the schedules of an agent, and sends what is due. Any number of processes may do so on one store."""

    def __init__(self, store: Store, worker: str, schedules: Sequence[Schedule], now: Callable[[], float]) -> None:
        check_names(schedules)
        self._store = store
        self._worker = worker
        self._schedules = tuple(schedules)
        self._now = now
        self.poller = Poller(store, SCHEDULE, _AT_ONCE, self._claim, self._carry_out)

    @property
    def healthy(self) -> bool:
        """Whether schedules can be claimed."""
        return self.poller.healthy

    async def run(self) -> None:
        """Go on until cancelled."""
        await self.poller.run()

    async def drain(self, patience: float) -> None:
        """Let what was begun end."""
        await self.poller.drain(patience)

    async def reconcile(self) -> None:
        """Have the store know the schedules that are configured, and no others.

        One that is new is due from now on. One that has stayed the same is due as it was before, also for the times that went by meanwhile.
        With another cron expression or zone it begins anew from now, and what was not sent of the old times is not sent any more.
        """
        for schedule in self._schedules:
            id = _box_id(schedule.name)
            body = _SCHEDULE.dump_json(schedule)
            await self._store.create(NewBox(id, SCHEDULE, root=id, idle=True), NewMail(id, _CONFIGURED, body))
        configured = {_box_id(schedule.name) for schedule in self._schedules}
        after = ""
        while boxes := await self._store.boxes(SCHEDULE, after=after, limit=_PAGE):
            for box in boxes:
                # One that was removed and is busy may have been configured again just now, by a process that started before this one.
                if box.id not in configured and (box.status == _IN_USE or box.busy):
                    await self._store.accept(NewMail(box.id, _REMOVED, b""))
            after = boxes[-1].id

    # What one claim leads to

    async def _claim(self, limit: int) -> list[Claim]:
        return await self._store.claim(self._worker, SCHEDULE, limit)

    async def _carry_out(self, claim: Claim) -> None:
        """Run one claim. If another worker has the schedule by now, nothing happened."""
        try:
            commit = await self._made(claim)
            await retry_store_operation(lambda: self._store.commit(claim, commit))
        except Fenced as error:
            log.debug("%s", error)
        except asyncio.CancelledError:
            with contextlib.suppress(StoreError):
                await asyncio.shield(self._store.commit(claim, Commit(again_at=self._now())))
            raise
        except _Unreadable as error:
            log.critical("%s", error)
            await self._put_off(claim, _PAUSE_WHEN_UNREADABLE)
        except Exception as error:
            log.critical("%s cannot go on", claim.box.id, exc_info=error)
            await self._put_off(claim, _PAUSE_WHEN_BROKEN)

    async def _put_off(self, claim: Claim, pause: float) -> None:
        """Nothing is done, and it is tried again later: nothing of what is due then is lost."""
        commit = Commit(again_at=self._now() + pause, charge=True)
        with contextlib.suppress(Fenced):
            await retry_store_operation(lambda: self._store.commit(claim, commit))

    async def _made(self, claim: Claim) -> Commit:
        # The times of the claim are the store's, as are those of timers: by a clock of ours it might be too early still.
        schedule_state = _loaded(claim)
        consumed = [mail.seq for mail in claim.mail]
        if schedule_state is None:
            return Commit(consumed=consumed)
        schedule_state, sent = await self._sent(schedule_state, claim.now)
        return Commit(
            consumed=consumed,
            state=_SCHEDULE_STATE.dump_json(schedule_state),
            status=_REMOVED if schedule_state.removed else _IN_USE,
            # If there is more to send than was sent now, this one is over, and the box is due again at once.
            timers=[Timer(_NEXT, schedule_state.next)],
            spawn=[_thread_box(id, schedule_state.schedule.user_id) for id in dict.fromkeys(each.box for each in sent)],
            new_mails=sent,
        )

    async def _sent(self, schedule_state: _ScheduleState, now: float) -> tuple[_ScheduleState, list[NewMail]]:
        """What is to be sent now, oldest first, and how the schedule stands then."""
        times, left_out, following = await _due(schedule_state, now)
        if not times:
            return schedule_state, []
        schedule = schedule_state.schedule
        if left_out:
            log.warning(
                "schedule %r was not carried out for so long that %d of its times are left out", schedule.name, left_out
            )
        thread = None if schedule.new_thread else await self._thread(schedule_state, times[0])
        new_mails = [_wake_up(schedule, thread, each) for each in times[:_MOST_SENT]]
        if left_out:
            told = replace(schedule, message=f"{schedule.message}\n\n{_left_out(left_out)}")
            new_mails[0] = _wake_up(told, thread, times[0])
        following = times[_MOST_SENT] if len(times) > _MOST_SENT else following
        return replace(schedule_state, next=following, thread=thread or schedule_state.thread), new_mails

    async def _thread(self, schedule_state: _ScheduleState, due: float) -> str:
        """The thread of a schedule: the one it has, unless that is closed.

        If it is closed after we have looked, what was sent is lost with it. That is what closing means: it takes nothing more.
        """
        known = schedule_state.thread
        if known is not None:
            box = await retry_store_operation(lambda: self._store.box(known))
            if box is not None and box.status != "closed":
                return known
        return _thread_id(schedule_state.schedule, due)


async def _due(schedule_state: _ScheduleState, now: float) -> tuple[list[float], int, float | None]:
    """The times that are due, oldest first; how many before them are left out, because there are too many; the first that is not due."""
    cron = _cron(schedule_state.schedule)
    times: deque[float] = deque(maxlen=_MOST_CAUGHT_UP)
    count = 0
    at = schedule_state.next
    while at is not None and at <= now:
        times.append(at)
        count += 1
        if count % _MOST_CAUGHT_UP == 0:
            await asyncio.sleep(0)  # every minute of a year is a lot
        at = cron.next_after(at)
    return list(times), count - len(times), at


def _loaded(claim: Claim) -> _ScheduleState | None:
    """How a schedule stands after what its mail says; None if it was never configured."""
    try:
        schedule_state = _SCHEDULE_STATE.validate_json(claim.box.state) if claim.box.state else None
        for mail, schedule in _read(claim.mail):
            if schedule is None:
                schedule_state = schedule_state and replace(schedule_state, next=None, removed=True)
            elif schedule_state is None:
                schedule_state = _ScheduleState(schedule, _cron(schedule).next_after(mail.accepted_at))
            else:
                schedule_state = schedule_state.configured(schedule, mail.accepted_at)
    except (ValueError, ConfigError) as error:
        problem = error.errors(include_input=False)[0]["msg"] if isinstance(error, ValidationError) else error
        raise _Unreadable(
            f"What is stored of {claim.box.id} cannot be read, and is tried again in an hour: {problem}"
        ) from None
    return schedule_state


def _read(mail: Sequence[Mail]) -> Iterator[tuple[Mail, Schedule | None]]:
    """What the mail says: the schedule that is configured, or None if it is removed."""
    for each in mail:
        yield each, _SCHEDULE.validate_json(each.body) if each.kind == _CONFIGURED else None


def _cron(schedule: Schedule) -> Cron:
    return Cron(schedule.cron, schedule.zone)


def _wake_up(schedule: Schedule, thread: str | None, due: float) -> NewMail:
    message = WakeUp(schedule.name, _cron(schedule).text(due), schedule.message)
    return encode_mail(thread or _thread_id(schedule, due), message, dedup=f"schedule/{schedule.name}/{int(due)}")


def _left_out(count: int) -> str:
    return f"(Earlier times of this schedule that nobody carried out, and that are left out now: {count}.)"


def _thread_box(id: str, user_id: str | None) -> NewBox:
    """A thread that is made unless it is there."""
    return NewBox(id, THREAD, dump_thread(Thread(id, user_id)), root=id, idle=True)


def _thread_id(schedule: Schedule, due: float) -> str:
    """An id like any other thread's, which is the same whichever worker creates the thread, and however often.

    Threads are listed by their ids.
    """
    return f"thr_{int(due * 1000):012x}{_digest([schedule.name, schedule.user_id, due])[:16]}"


def _box_id(name: str) -> str:
    return f"rapkit/schedule/{name}"


def _digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()


def _check_unicode(what: str, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            f"The {what} of a schedule has half of a surrogate pair in it, which is no text. Write it again."
        ) from None


def _check_user_id(user_id: str) -> None:
    try:
        _USER_ID.validate_python(user_id, strict=True)
    except ValidationError:
        raise ConfigError(
            f"The user_id of a schedule has 1 to {MAX_ID} characters, and no control characters among them."
        ) from None


class _Unreadable(StoreError):
    """The stored state of a schedule cannot be read."""
