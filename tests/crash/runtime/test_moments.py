"""The runtime dies at a chosen moment of one conversation; the journal is the same in the end as if it had not."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.call_ids import numbers
from tests.crash.processes import Process
from tests.crash.runtime.arena import Arena, Setting, server_process
from tests.crash.runtime.client import Client, Glance
from tests.crash.runtime.evidence import Journal
from tests.crash.runtime.model import Calls, command
from tests.crash.runtime.retelling import told, told_in_pieces

# However slow the machine is, the questions are answered in time.
DYING = Setting(runtimes=1, lease=0.6, slowest=0.0, schedules=False, question_timeout=300.0)

MOMENTS = (
    "after create",
    "after accept user",
    "after commit journal",
    "in the model",
    "before commit calls",
    "after commit calls",
    "before post",
    "after accept tool_result",
    "after accept subscription_event",
    "after commit child",
)
MORE_MOMENTS = (
    "after note requests",
    "before create",
    "after claim",
    "before accept user",
    "before commit journal",
    "after post",
    "before settle invocation",
    "after settle invocation",
    "before accept tool_result",
    "before answer",
    "before commit answer",
    "after commit answer",
    "before accept subscription_event",
    "before commit child",
    "before accept user_choice",
    "after accept user_choice",
    "before accept choice",
    "after accept choice",
    "before commit chosen",
    "after commit chosen",
    "before settle answer",
    "after settle answer",
    "before accept cancel",
    "after accept cancel",
    "before commit closed",
    "after commit closed",
    "before accept close",
    "after accept close",
)

PARENT = """\
user m#0
said "heard m#0" and called a_put m.1
result of c1: put m.1
said "heard put m.1"
user m#1
said "heard m#1" and called a_apart m.2
result of c2: subscribed
event m.2/1, threaded
child 1 for m.2/1
child 1 closed
event m.2/2, threaded, final
child 2 for m.2/2
child 2 closed
c2 is over: the subscription ended with its final event
said "heard Subscribed to apart. The id of the subscription is c2."
user m#2
said "heard m#2" and called a_ask m.3
c3 asks Shall we, m.3?
chosen 0 for c3
result of c3: ask m.3 Yes
said "heard ask m.3 Yes"
user m#3
said "heard m#3" and called a_hold m.4
result of c4: Error: Cancelled. The user cancelled this call.
said "heard Error: Cancelled. The user cancelled this call."
closed by the user
"""

PATIENT = """\
user w#0
w#0
called sleep
result of c1: some seconds have passed.
some seconds have passed.
user w#1
w#1
called a_late w.1
result of c2: timed out
timed out
user w#2
w#2
called a_wipe w.2
c3 asks May the agent call a_wipe with {"key": "w.2"}?
chosen 0 for c3
result of c3: wipe w.2
wipe w.2
user w#3
w#3
called ask_user
c4 asks What now?
chosen This. for c4
result of c4: This.
This.
user w#4
w#4
called spawn_thread
child 1 for w#5
result of c5: The child thread child 1 works on it. Its reports will come by themselves.
The child thread child 1 works on it. Its reports will come by themselves.
child 1 says so far
so far
child 1 closed
child 1 says w.5 is done, and that is all
w.5 is done
"""

PATIENT_CHILD = """\
task w#5
w#5
called report_to_parent
called a_put w.5~
result of c7: The parent thread will see it.
The parent thread will see it.
result of c8: put w.5~
put w.5~
called report_to_parent
result of c10: The parent thread will see it; this thread is closed.
closed by the thread itself, which is done
"""

# Of what takes time; they come one after the other, and the runtime dies at each of them.
TIMES = ("end of sleep", "timeout", "question", "permission", "spawn", "report", "heard report")
SUMMARIES = ("in a summary", "before commit summary", "after commit summary")
SCHEDULES = ("before commit firing", "after commit firing", "before commit woken", "after commit woken")
MORE_TIMES = (
    "before commit schedule",
    "after commit schedule",
    "before accept answer",
    "after accept answer",
    "before accept choice",
    "after accept choice",
    "before commit closed",
    "after commit closed",
)

CHILD = """\
began with m.2/{n}
said "heard m.2/{n}" and called a_put m.2/{n}!
result of c3: put m.2/{n}!
said "heard put m.2/{n}!"
closed by the thread itself, because it was made for one event and nothing is left to do
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """One tool server for all moments: it is not the one that dies."""
    process = server_process(tmp_path_factory.mktemp("server"), "a")
    process.start()
    yield process
    process.clean_up()


@pytest.mark.parametrize("moment", MOMENTS)
async def test_a_runtime_that_dies_goes_on_where_it_was(tmp_path: Path, server: Process, moment: str) -> None:
    await die_and_go_on(tmp_path, server, moment)


@pytest.mark.soak
@pytest.mark.parametrize("moment", MORE_MOMENTS)
async def test_a_runtime_that_dies_at_any_moment_goes_on(tmp_path: Path, server: Process, moment: str) -> None:
    await die_and_go_on(tmp_path, server, moment)


async def die_and_go_on(tmp_path: Path, server: Process, moment: str) -> None:
    await server.ready()
    setting = replace(DYING, die=(moment,))
    parent, *children = await go_on(tmp_path, server, setting, converse)
    assert told(parent) == sorted(PARENT.splitlines())
    assert [told(child) for child in children] == [sorted(CHILD.format(n=n).splitlines()) for n in (1, 2)]


async def test_a_runtime_that_dies_while_time_goes_by_goes_on(tmp_path: Path, server: Process) -> None:
    moments = (f"{when} commit {each}" for each in TIMES for when in ("before", "after"))
    await die_while_time_goes_by(tmp_path, server, *moments)


async def test_a_runtime_that_dies_while_it_sums_up_goes_on(tmp_path: Path, server: Process) -> None:
    await die_while_time_goes_by(tmp_path, server, *SUMMARIES)


async def test_a_runtime_that_dies_when_a_schedule_is_due_is_in_time_and_does_not_repeat_it(
    tmp_path: Path, server: Process
) -> None:
    async def say_hello(client: Client) -> None:
        await client.create("h", command("h#0"))

    await server.ready()
    setting = replace(DYING, die=SCHEDULES, schedules=True)
    (journal,) = await go_on(tmp_path, server, setting, say_hello)
    assert told(journal) == ['said "heard h#0"', "user h#0"]


@pytest.mark.soak
@pytest.mark.parametrize("moment", MORE_TIMES)
async def test_a_runtime_that_dies_at_any_moment_while_time_goes_by_goes_on(
    tmp_path: Path, server: Process, moment: str
) -> None:
    await die_while_time_goes_by(tmp_path, server, moment)


async def die_while_time_goes_by(tmp_path: Path, server: Process, *moments: str) -> None:
    await server.ready()
    setting = replace(DYING, die=moments, schedules=any("schedule" in each for each in moments))
    parent, child = await go_on(tmp_path, server, setting, take_time)
    assert told_in_pieces(parent) == sorted(PATIENT.splitlines())
    assert told_in_pieces(child) == sorted(PATIENT_CHILD.splitlines())


async def go_on(
    tmp_path: Path, server: Process, setting: Setting, converse: Callable[[Client], Awaitable[None]]
) -> list[Journal]:
    """Converse with a runtime that dies; the journals that there are in the end, but for those of schedules."""
    async with Arena(tmp_path, 0, setting, [server]) as arena:
        with contextlib.suppress(TimeoutError):  # what has not come to an end, the account says
            async with asyncio.timeout(25 + 8 * len(setting.die)), asyncio.TaskGroup() as group:
                group.create_task(arena.revive())
                await converse(arena.client)
        never = set(setting.die) - arena.died_at
        evidence = await arena.settle(patience=60)
    assert not never, f"it never came to these moments: {sorted(never)}"
    ours = [journal for journal in evidence.journals.values() if journal.thread.root in evidence.threads]
    return sorted(ours, key=lambda journal: (len(journal.id), journal.id))


async def converse(client: Client) -> None:
    """A call; events in threads of their own; a question; a call that is cancelled; and good-bye. Each when all before has ended."""
    thread = ""
    turns: list[Calls] = [
        [("a_put", {"key": "m.1", "seconds": 0.0})],
        [("a_apart", {"key": "m.2", "last": 2, "pause": 0.02})],
        [("a_ask", {"key": "m.3"})],
        [("a_hold", {"key": "m.4"})],
    ]
    for number, calls in enumerate(turns):
        text = command(f"m#{number}", *calls)
        if not thread:
            thread = await client.create("m", text)
        else:
            await client.send(thread, f"m#{number}", text)
        if calls[0][0] == "a_ask":
            asked = await until(client, thread, lambda glance: numbers(glance.choices) == ["c3"])
            await client.choose(thread, next(iter(asked.choices)), 0, "choose")
        if calls[0][0] == "a_hold":
            held = await until(client, thread, lambda glance: numbers(glance.pending) == ["c4"])
            await client.cancel(thread, next(iter(held.pending)), "cancel")
        await until(client, thread, lambda glance: glance.status == "idle")
    await client.close(thread, "close")
    await until(client, thread, lambda glance: glance.status == "closed")


async def take_time(client: Client) -> None:
    """A sleep; a call that comes too late; one that must be permitted; a question; and a child with a task."""
    thread = ""
    child = command("w#5", ("report_to_parent", {"text": "so far"}), ("a_put", {"key": "w.5~", "seconds": 0.0}))
    turns: list[Calls] = [
        [("sleep", {"seconds": 0.3})],
        [("a_late", {"key": "w.1", "seconds": 8.0})],  # not while the runtime is gone: what has come is not given up
        [("a_wipe", {"key": "w.2"})],
        [("ask_user", {"question": "What now?"})],
        [("spawn_thread", {"task": child})],
    ]
    for number, calls in enumerate(turns):
        text = command(f"w#{number}", *calls)
        if not thread:
            thread = await client.create("w", text)
        else:
            await client.send(thread, f"w#{number}", text)
        if calls[0][0] == "a_wipe":
            asked = await until(client, thread, lambda glance: numbers(glance.choices) == ["c3"])
            await client.choose(thread, next(iter(asked.choices)), 0, "permit")
        if calls[0][0] == "ask_user":
            asked = await until(client, thread, lambda glance: numbers(glance.choices) == ["c4"])
            await client.answer(thread, next(iter(asked.choices)), "This.", "answer")
        await until(client, thread, lambda glance: glance.status == "idle")


async def until(client: Client, thread: str, wanted: Callable[[Glance], bool]) -> Glance:
    while not wanted(glance := await client.look(thread)):
        await asyncio.sleep(0.03)
    return glance
