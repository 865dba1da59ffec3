"""Schedules: each time is told once, whatever happens to processes, clocks and the configuration.

A process is brought in as `Process`; it works when it is told to, and its clock, which is the store's too, stands still meanwhile.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from rapkit import Agent
from rapkit.errors import ConfigError, StoreBusy
from rapkit.kernel.entries import ModelSaid, WokenUp
from rapkit.kernel.incoming import CloseThread, WakeUp
from rapkit.kernel.thread import load_thread
from rapkit.keyring import load_keyring
from rapkit.mailbox import Commit, NewBox, Store
from rapkit.models.scripted import Scripted
from rapkit.runtime import mail_codec
from rapkit.runtime.schedules import SCHEDULE, Schedule, Schedules
from rapkit.runtime.toolsets import THREAD
from rapkit.stores.sqlite import SqliteStore
from tests.log_records import ours
from tests.runtime.agents import ScriptedReplies, ThreadDriver
from tests.runtime.clocks import ManualClock
from tests.server.sink import PATIENCE

HOURLY = Schedule("0 * * * *", "Look at the inbox.", name="inbox")
A_MOMENT = 10.0
"""Longer than the lease of whoever died."""

Told = tuple[str, str, str]
"""In which thread, what was due, and what was said."""


class SettableClock:
    """Goes where it is put, back too."""

    def __init__(self, text: str) -> None:
        self.time = 0.0
        self.put(text)

    def now(self) -> float:
        return self.time

    def put(self, text: str) -> None:
        """To a time of UTC."""
        self.time = datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


class Process:
    """One run of the agent's schedules."""

    number = 0

    def __init__(self, store: Store, clock: SettableClock, *schedules: Schedule) -> None:
        Process.number += 1
        self._store = store
        self._name = f"worker_{Process.number}"
        self.schedules = Schedules(store, self._name, schedules, clock.now)

    async def start(self) -> "Process":
        """As it is started: it looks at its configuration, and does what is due."""
        await self._store.renew(self._name)
        await self.schedules.reconcile()
        await self.work()
        return self

    async def work(self) -> None:
        """Do all that is due now."""
        await self._store.renew(self._name)
        while await self.schedules.poller.fill():
            await self.schedules.drain(PATIENCE)


class Killed(Exception):
    """What a dead process gets from its store."""


class MortalStore:
    """A store as a process sees it that dies at its so-many-th operation: before it is done, or after it, without hearing of it."""

    def __init__(self, store: Store, operations: int, *, unheard: bool) -> None:
        self._store = store
        self._left = operations
        self._unheard = unheard
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        async def operation(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self.dead or (self._left < 0 and not self._unheard):
                self.dead = True
                raise Killed
            result = await getattr(self._store, name)(*arguments, **options)
            if self._left < 0:
                self.dead = True
                raise Killed
            return result

        return operation


class WatchedStore:
    """A store that lets something else happen before the first commit."""

    def __init__(self, store: Store, before_commit: Callable[[], Awaitable[None]]) -> None:
        self._store = store
        self._to_happen = [before_commit]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def commit(self, *arguments: Any) -> Any:
        while self._to_happen:
            await self._to_happen.pop()()
        return await self._store.commit(*arguments)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock("2026-11-16 08:30")


@pytest.fixture
async def store(tmp_path: Path, clock: SettableClock) -> AsyncIterator[SqliteStore]:
    store = opened(tmp_path, clock)
    yield store
    await store.close()


def opened(folder: Path, clock: SettableClock) -> SqliteStore:
    path = folder / "agent.db"
    return SqliteStore(str(path), load_keyring(path), clock=clock.now)


async def told(store: Store) -> list[Told]:
    """What threads were told since this was last asked, in the order in which it came to them."""
    await store.renew("reader")
    found: list[tuple[int, Told]] = []
    while claims := await store.claim("reader", THREAD, 100):
        for claim in claims:
            for mail in claim.mail:
                message = mail_codec.decode_mail(mail)
                assert isinstance(message, WakeUp)
                found.append((mail.seq, (claim.box.id, message.due, message.text)))
            await store.commit(claim, Commit(consumed=[mail.seq for mail in claim.mail]))
    return [each for _, each in sorted(found)]


async def hours_told(store: Store) -> list[str]:
    return [due.removeprefix("2026-11-16 ").removesuffix(" UTC") for _, due, _ in await told(store)]


async def close_thread(store: Store, thread_id: str) -> None:
    await store.accept(mail_codec.encode_mail(thread_id, CloseThread()))
    (claim,) = await store.claim("reader", THREAD, 1)
    assert claim.box.id == thread_id
    await store.commit(claim, Commit(consumed=[mail.seq for mail in claim.mail], status="closed"))


# What is due is told


async def test_when_a_schedule_is_due_a_thread_is_told_what_it_says(store: SqliteStore, clock: SettableClock) -> None:
    schedule = Schedule("0 9 * * MON-FRI", "Summarise.", zone="Europe/Berlin", name="morning", user_id="u1")
    clock.put("2026-11-16 07:00")
    process = await Process(store, clock, schedule).start()
    before = await told(store)

    clock.put("2026-11-16 08:00")
    await process.work()
    ((thread_id, due, text),) = await told(store)
    box = await store.box(thread_id)

    assert before == []
    assert (due, text) == ("2026-11-16 09:00 Europe/Berlin", "Summarise.")
    assert box is not None
    assert (box.root, load_thread(box.state).user_id) == (thread_id, "u1")


async def test_all_that_a_schedule_says_comes_to_one_thread(store: SqliteStore, clock: SettableClock) -> None:
    process = await Process(store, clock, HOURLY).start()

    for hour in ("09:00", "10:00", "11:00"):
        clock.put(f"2026-11-16 {hour}")
        await process.work()
    heard = await told(store)

    assert [due for _, due, _ in heard] == [f"2026-11-16 {hour}:00 UTC" for hour in ("09", "10", "11")]
    assert len({thread_id for thread_id, _, _ in heard}) == 1


async def test_it_is_told_by_itself_when_the_time_comes(store: SqliteStore, clock: SettableClock) -> None:
    process = await Process(store, clock, HOURLY).start()
    running = asyncio.create_task(process.schedules.run())
    clock.put("2026-11-16 09:00")
    store.notify()

    async with asyncio.timeout(PATIENCE):
        await store.wait(THREAD, PATIENCE)
    running.cancel()
    with suppress(asyncio.CancelledError):
        await running
    await process.schedules.drain(PATIENCE)

    assert process.schedules.healthy
    assert await hours_told(store) == ["09:00"]


async def test_with_new_thread_each_comes_to_a_thread_of_its_own(store: SqliteStore, clock: SettableClock) -> None:
    apart = Schedule("0 * * * *", "Look.", name="inbox", new_thread=True, user_id="u1")
    await Process(store, clock, apart).start()
    clock.put("2026-11-16 11:10")
    await Process(store, clock, apart).start()

    heard = await told(store)
    boxes = [await store.box(thread_id) for thread_id, _, _ in heard]

    assert [due for _, due, _ in heard] == [f"2026-11-16 {hour}:00 UTC" for hour in ("09", "10", "11")]
    assert len({thread_id for thread_id, _, _ in heard}) == 3
    assert [load_thread(box.state).user_id for box in boxes if box is not None] == ["u1"] * 3
    # Threads are listed by their ids, the latest first: so these are in order.
    assert sorted(thread_id for thread_id, _, _ in heard) == [thread_id for thread_id, _, _ in heard]


async def test_a_thread_that_was_closed_is_followed_by_a_new_one(store: SqliteStore, clock: SettableClock) -> None:
    process = await Process(store, clock, HOURLY).start()
    clock.put("2026-11-16 09:00")
    await process.work()
    ((first, _, _),) = await told(store)
    await close_thread(store, first)

    for hour in ("10:00", "11:00"):
        clock.put(f"2026-11-16 {hour}")
        await process.work()
    heard = await told(store)

    assert [due for _, due, _ in heard] == ["2026-11-16 10:00 UTC", "2026-11-16 11:00 UTC"]
    assert {thread_id for thread_id, _, _ in heard}.isdisjoint({first})
    assert len({thread_id for thread_id, _, _ in heard}) == 1


async def test_where_clocks_are_changed_each_day_has_its_message(store: SqliteStore, clock: SettableClock) -> None:
    nightly = Schedule("30 2 * * *", "Back up.", zone="Europe/Berlin", name="backup")
    clock.put("2027-03-26 12:00")
    process = await Process(store, clock, nightly).start()

    for hour in range(1, 73):
        clock.time += 3600
        await process.work()
        if hour == 40:
            process = await Process(store, clock, nightly).start()

    assert [due for _, due, _ in await told(store)] == [
        "2027-03-27 02:30 Europe/Berlin",
        "2027-03-28 03:00 Europe/Berlin",  # 02:30 was skipped
        "2027-03-29 02:30 Europe/Berlin",
    ]


async def test_an_agent_does_what_its_schedule_says_and_what_it_missed(tmp_path: Path) -> None:
    """From the configuration to the model, and over a restart."""
    clock = ManualClock()
    model = ScriptedReplies()
    agent = Agent(model=Scripted(model), store=f"sqlite:///{tmp_path}/agent.db", schedules=[HOURLY])

    async def woken(number: int) -> list[WokenUp]:
        """So many lines of the journal of the only thread, once the model has answered the last of them."""
        async with asyncio.timeout(PATIENCE):
            while not (looks := (await agent.engine.threads.newest()).looks):
                await asyncio.sleep(0.01)
        (look,) = looks
        talk = ThreadDriver(agent.engine.threads, look.thread.id)
        last = await talk.until(WokenUp, number)
        await talk.until(ModelSaid, where=lambda said: last.due in said.text and "Look at the inbox." in said.text)
        return await talk.all(WokenUp)

    async with agent.lifespan(public_url="http://127.0.0.1:1", environment=clock.environment()):
        clock.advance(3600)
        (first,) = await woken(1)
    clock.advance(3 * 3600)
    async with agent.lifespan(public_url="http://127.0.0.1:1", environment=clock.environment()):
        all_of_them = await woken(4)

    times = [datetime.strptime(each.due, "%Y-%m-%d %H:%M UTC") for each in all_of_them]
    assert all_of_them[0] == first == WokenUp("inbox", first.due, "Look at the inbox.")
    assert times == [times[0] + timedelta(hours=n) for n in range(4)]


# None is lost, none is doubled


async def test_what_came_due_while_nobody_ran_is_told_late_and_in_order(
    store: SqliteStore, clock: SettableClock
) -> None:
    await Process(store, clock, HOURLY).start()

    clock.put("2026-11-16 12:20")
    await Process(store, clock, HOURLY).start()

    assert await hours_told(store) == ["09:00", "10:00", "11:00", "12:00"]


async def test_a_clock_that_is_set_back_has_nothing_told_twice(store: SqliteStore, clock: SettableClock) -> None:
    process = await Process(store, clock, HOURLY).start()
    clock.put("2026-11-16 10:00")
    await process.work()
    first = await hours_told(store)

    again = []
    for time in ("08:00", "09:00", "09:30", "10:00", "10:30"):
        clock.put(f"2026-11-16 {time}")
        await process.work()
        await Process(store, clock, HOURLY).start()
        again += await hours_told(store)
    clock.put("2026-11-16 11:00")
    await process.work()

    assert first == ["09:00", "10:00"]
    assert again == []
    assert await hours_told(store) == ["11:00"]


async def test_two_processes_tell_each_time_once(tmp_path: Path, store: SqliteStore, clock: SettableClock) -> None:
    other = opened(tmp_path, clock)
    processes = [Process(each, clock, HOURLY) for each in (store, other)]
    await asyncio.gather(*(process.start() for process in processes))

    for hour in range(9, 20):
        clock.put(f"2026-11-16 {hour:02}:00")
        await asyncio.gather(*(process.work() for process in processes))
    await other.close()

    assert await hours_told(store) == [f"{hour:02}:00" for hour in range(9, 20)]


@pytest.mark.parametrize("unheard", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("operations", range(22))
async def test_a_process_that_dies_at_any_moment_loses_nothing_and_doubles_nothing(
    store: SqliteStore, clock: SettableClock, operations: int, unheard: bool
) -> None:
    mortal = MortalStore(store, operations, unheard=unheard)
    process = Process(cast("Store", mortal), clock, HOURLY)

    for hour in ("08:30", "09:00", "10:00", "11:00", "12:00"):
        clock.put(f"2026-11-16 {hour}")
        with suppress(Killed):
            await (process.start() if hour == "08:30" else process.work())
        if mortal.dead:
            clock.time += A_MOMENT
            mortal = MortalStore(store, 10**6, unheard=False)
            process = await Process(store, clock, HOURLY).start()

    assert await hours_told(store) == ["09:00", "10:00", "11:00", "12:00"]


async def test_a_commit_of_which_it_is_not_known_whether_it_was_written_is_not_doubled(
    store: SqliteStore, clock: SettableClock
) -> None:
    class Doubtful:
        """Writes the first commit of each claim, and says that it could not."""

        def __init__(self) -> None:
            self.said: set[int] = set()

        def __getattr__(self, name: str) -> Any:
            return getattr(store, name)

        async def commit(self, claim: Any, commit: Commit) -> Any:
            result = await store.commit(claim, commit)
            if claim.epoch not in self.said:
                self.said.add(claim.epoch)
                raise StoreBusy("Perhaps.")
            return result

    process = await Process(cast("Store", Doubtful()), clock, HOURLY).start()
    clock.put("2026-11-16 10:00")
    await process.work()

    assert await hours_told(store) == ["09:00", "10:00"]


async def test_what_is_under_way_when_the_process_is_stopped_is_done_by_the_next(
    store: SqliteStore, clock: SettableClock
) -> None:
    await Process(store, clock, HOURLY).start()
    clock.put("2026-11-16 09:00")
    reached, stuck = asyncio.Event(), asyncio.Event()

    async def stick() -> None:
        reached.set()
        await stuck.wait()

    stopped = Process(cast("Store", WatchedStore(store, stick)), clock, HOURLY)
    await store.renew(stopped._name)
    await stopped.schedules.poller.fill()
    await reached.wait()
    await stopped.schedules.drain(0)

    await Process(store, clock, HOURLY).start()  # at once: it was given back, so no lease has to end

    assert await hours_told(store) == ["09:00"]


async def test_many_that_were_missed_are_told_in_several_steps(store: SqliteStore, clock: SettableClock) -> None:
    minutely = Schedule("* * * * *", "Look.", name="minutely")
    await Process(store, clock, minutely).start()

    clock.put("2026-11-16 12:40")
    await Process(store, clock, minutely).start()
    heard = [due for _, due, _ in await told(store)]

    assert len(heard) == len(set(heard)) == 250
    assert heard == sorted(heard)


async def test_too_many_that_were_missed_are_left_out_and_that_is_said(
    store: SqliteStore, clock: SettableClock, caplog: pytest.LogCaptureFixture
) -> None:
    minutely = Schedule("* * * * *", "Look.", name="minutely")
    await Process(store, clock, minutely).start()

    clock.put("2026-11-17 08:30")
    with caplog.at_level(logging.WARNING, "rapkit.schedules"):
        await Process(store, clock, minutely).start()
    heard = await told(store)

    assert len(heard) == 1000
    assert heard[-1][1:] == ("2026-11-17 08:30 UTC", "Look.")
    assert heard[0][2].startswith("Look.\n\n")
    assert "left out now: 440." in heard[0][2]
    assert {text for _, _, text in heard[1:]} == {"Look."}
    assert [record.getMessage() for record in ours(caplog)] == [
        "schedule 'minutely' was not carried out for so long that 440 of its times are left out"
    ]


async def test_a_schedule_that_cannot_be_read_is_put_off_and_the_others_go_on(
    store: SqliteStore, clock: SettableClock, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create(NewBox("rapkit/schedule/odd", SCHEDULE, b"{}", root="rapkit/schedule/odd"))
    odd = Schedule("0 * * * *", "Look.", name="odd")

    process = await Process(store, clock, odd, HOURLY).start()
    put_off = await store.box("rapkit/schedule/odd")
    clock.put("2026-11-16 09:00")
    await process.work()

    assert "rapkit/schedule/odd cannot be read" in caplog.text
    assert put_off is not None
    assert not put_off.busy
    assert await hours_told(store) == ["09:00"]


# What is configured


async def test_another_message_changes_the_message_alone(store: SqliteStore, clock: SettableClock) -> None:
    process = await Process(store, clock, HOURLY).start()
    clock.put("2026-11-16 09:00")
    await process.work()
    clock.put("2026-11-16 11:10")
    await Process(store, clock, Schedule("0 * * * *", "Look at the outbox.", name="inbox")).start()

    heard = await told(store)

    assert [(due[11:16], text) for _, due, text in heard] == [
        ("09:00", "Look at the inbox."),
        ("10:00", "Look at the outbox."),
        ("11:00", "Look at the outbox."),
    ]
    assert len({thread_id for thread_id, _, _ in heard}) == 1


@pytest.mark.parametrize(
    "changed",
    [Schedule("30 * * * *", "Look.", name="inbox"), Schedule("0 * * * *", "Look.", name="inbox", zone="Asia/Kolkata")],
    ids=["cron", "zone"],
)
async def test_another_time_counts_from_when_it_was_configured(
    store: SqliteStore, clock: SettableClock, changed: Schedule
) -> None:
    await Process(store, clock, HOURLY).start()

    clock.put("2026-11-16 10:45")
    process = await Process(store, clock, changed).start()
    clock.put("2026-11-16 12:00")
    await process.work()
    minutes = [due[14:16] for _, due, _ in await told(store)]

    assert len(minutes) == 1  # half past eleven, as it is here
    clock.put("2026-11-16 12:30")
    await process.work()
    assert len(await told(store)) == 1


async def test_what_is_due_between_its_configuration_and_its_first_claim_is_not_lost(
    store: SqliteStore, clock: SettableClock
) -> None:
    clock.put("2026-11-16 08:59:59")
    await Process(store, clock, HOURLY).schedules.reconcile()

    clock.put("2026-11-16 09:00:01")
    await Process(store, clock, HOURLY).start()

    assert await hours_told(store) == ["09:00"]


@pytest.mark.parametrize("new_thread", [False, True], ids=["one thread", "new threads"])
async def test_a_time_that_was_told_is_not_told_again_when_the_old_configuration_comes_back(
    store: SqliteStore, clock: SettableClock, new_thread: bool
) -> None:
    schedule = replace(HOURLY, new_thread=new_thread)
    process = await Process(store, clock, schedule).start()
    clock.put("2026-11-16 09:00")
    await process.work()

    clock.put("2026-11-16 08:50")  # and the clock is set back, too
    await Process(store, clock, replace(schedule, cron="30 * * * *")).start()
    await Process(store, clock, schedule).start()
    clock.put("2026-11-16 10:00")
    await process.work()
    heard = await told(store)

    assert [due[11:16] for _, due, _ in heard] == ["09:00", "10:00"]
    assert len({thread_id for thread_id, _, _ in heard}) == (2 if new_thread else 1)


async def test_what_is_not_configured_any_more_is_not_told(store: SqliteStore, clock: SettableClock) -> None:
    other = Schedule("0 * * * *", "Look at the outbox.", name="outbox")
    old = await Process(store, clock, HOURLY, other).start()
    clock.put("2026-11-16 10:10")
    new = await Process(store, clock, other).start()
    clock.put("2026-11-16 11:00")
    await old.work()
    await new.work()

    assert [(due[11:16], text) for _, due, text in await told(store)] == [
        (hour, "Look at the outbox.") for hour in ("09:00", "10:00", "11:00")
    ]
    assert await store.next_due(SCHEDULE) == 3600


async def test_what_is_configured_again_begins_anew_in_its_thread(store: SqliteStore, clock: SettableClock) -> None:
    process = await Process(store, clock, HOURLY).start()
    clock.put("2026-11-16 09:00")
    await process.work()
    await Process(store, clock).start()
    clock.put("2026-11-16 11:10")
    process = await Process(store, clock, HOURLY).start()
    clock.put("2026-11-16 12:00")
    await process.work()
    heard = await told(store)

    assert [due[11:16] for _, due, _ in heard] == ["09:00", "12:00"]
    assert len({thread_id for thread_id, _, _ in heard}) == 1


async def test_what_is_configured_again_while_it_is_removed_is_configured(
    store: SqliteStore, clock: SettableClock
) -> None:
    await Process(store, clock, HOURLY).start()
    again = Process(store, clock, HOURLY)

    await Process(cast("Store", WatchedStore(store, again.schedules.reconcile)), clock).start()
    clock.put("2026-11-16 09:00")
    await again.work()

    assert await hours_told(store) == ["09:00"]


async def test_the_one_who_started_last_says_what_is_configured(store: SqliteStore, clock: SettableClock) -> None:
    await Process(store, clock, HOURLY).start()
    await Process(store, clock).start()
    await Process(store, clock, HOURLY).schedules.reconcile()  # nobody has read that yet

    last = await Process(store, clock).start()
    clock.put("2026-11-16 10:00")
    await last.work()

    assert await told(store) == []


async def test_another_user_has_another_thread(store: SqliteStore, clock: SettableClock) -> None:
    schedules = [Schedule("0 * * * *", "Look.", name="inbox", user_id=user) for user in ("u1", "u2")]
    clock.put("2026-11-16 08:30")
    for hour, schedule in zip(("09:00", "10:00"), schedules, strict=True):
        process = await Process(store, clock, schedule).start()
        clock.put(f"2026-11-16 {hour}")
        await process.work()

    boxes = [await store.box(thread_id) for thread_id, _, _ in await told(store)]

    assert [load_thread(box.state).user_id for box in boxes if box is not None] == ["u1", "u2"]


async def test_more_schedules_than_fit_on_a_page_can_be_removed(store: SqliteStore, clock: SettableClock) -> None:
    await Process(store, clock, *(Schedule("0 * * * *", "Look.", name=f"s{n}") for n in range(130))).start()
    process = await Process(store, clock, HOURLY).start()
    clock.put("2026-11-16 09:00")
    await process.work()

    assert [text for _, _, text in await told(store)] == ["Look at the inbox."]


def test_a_schedule_without_a_name_is_called_after_what_it_says() -> None:
    same = [Schedule("0 9 * * *", "Look."), Schedule("0 9 * * *", "Look.")]
    others = [
        Schedule("1 9 * * *", "Look."),
        Schedule("0 9 * * *", "Listen."),
        Schedule("0 9 * * *", "Look.", zone="CET"),
        Schedule("0 9 * * *", "Look.", user_id="u1"),
        Schedule("0 9 * * *", "Look.", new_thread=True),
    ]

    assert same[0] == same[1]
    assert len({each.name for each in [*same, *others]}) == 6


def named(*names: str) -> Sequence[Schedule]:
    return [Schedule(f"{n} 9 * * *", "Look.", name=name) for n, name in enumerate(names)]


@pytest.mark.parametrize(
    ("schedules", "said"),
    [
        (named("a", "b", "a"), "Two schedules have the name 'a'. Leave one out, or give each a name of its own."),
        ([HOURLY, HOURLY], "Two schedules are the same. Leave one out"),
    ],
    ids=["name", "same"],
)
async def test_two_schedules_have_two_names(
    store: SqliteStore, clock: SettableClock, schedules: Sequence[Schedule], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        Process(store, clock, *schedules)

    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"cron": "0 9 * *"}, "is no cron expression: it has 4 fields."),
        ({"zone": "Berlin"}, "'Berlin' is no time zone."),
        ({"message": " \n"}, "A schedule needs a message"),
        ({"name": "a\nb"}, "cannot be the name of a schedule."),
        ({"name": "a" * 101}, "It has 1 to 100 characters on one line"),
        ({"name": " a"}, "cannot be the name of a schedule."),
        ({"user_id": ""}, "The user_id of a schedule has 1 to 512 characters"),
        ({"user_id": "a\x00"}, "no control characters among them"),
        ({"message": "\ud800"}, "The message of a schedule has half of a surrogate pair in it"),
    ],
    ids=["cron", "zone", "message", "two lines", "long", "blank", "no user", "control", "surrogate"],
)
def test_what_cannot_be_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Schedule(**{"cron": "0 9 * * *", "message": "Look.", **given})

    assert said in str(refused.value)
