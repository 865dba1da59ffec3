"""The runtime dies at a chosen moment of one conversation; the journal is the same in the end as if it had not."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rapkit.kernel.entries import (
    Answered,
    Began,
    ChildEnded,
    ChildMade,
    ChoiceAsked,
    ChoiceMadeEntry,
    ClosedEntry,
    Happened,
    JournalEntry,
    ModelSaid,
    Unsubscribed,
    UserSaid,
)
from tests.crash.processes import Process
from tests.crash.runtime.arena import Arena, Setting, server_process
from tests.crash.runtime.client import Client, Glance
from tests.crash.runtime.evidence import Journal
from tests.crash.runtime.model import Calls, command

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
result of call_1: put m.1
said "heard put m.1"
user m#1
said "heard m#1" and called a_apart m.2
result of call_2: subscribed
event m.2/1, threaded
child 1 for m.2/1
child 1 closed
event m.2/2, threaded, final
child 2 for m.2/2
child 2 closed
call_2 is over: the subscription ended with its final event
said "heard Subscribed to apart. The id of the subscription is call_2."
user m#2
said "heard m#2" and called a_ask m.3
call_3 asks Shall we, m.3?
chosen 0 for call_3
result of call_3: ask m.3 Yes
said "heard ask m.3 Yes"
user m#3
said "heard m#3" and called a_hold m.4
result of call_4: Error: Cancelled. The user cancelled this call.
said "heard Error: Cancelled. The user cancelled this call."
closed by the user
"""

CHILD = """\
began with m.2/{n}
said "heard m.2/{n}" and called a_put m.2/{n}!
result of call_3: put m.2/{n}!
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
    setting = Setting(runtimes=1, lease=0.6, slowest=0.0, die=moment)
    async with Arena(tmp_path, 0, setting, [server]) as arena:
        with contextlib.suppress(TimeoutError):  # what has not come to an end, the account says
            async with asyncio.timeout(25), asyncio.TaskGroup() as group:
                group.create_task(arena.revive())
                await converse(arena.client)
        evidence = await arena.settle(patience=10)

    assert len(evidence.deaths) == 2, f"it never came to this moment: {moment}"
    parent, *children = sorted(evidence.journals.values(), key=lambda journal: (len(journal.id), journal.id))
    assert told(parent) == sorted(PARENT.splitlines())
    assert [told(child) for child in children] == [sorted(CHILD.format(n=n).splitlines()) for n in (1, 2)]


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
            await until(client, thread, lambda glance: bool(glance.choices))
            await client.choose(thread, "call_3", 0, "choose")
        if calls[0][0] == "a_hold":
            await until(client, thread, lambda glance: "call_4" in glance.pending)
            await client.cancel(thread, "call_4", "cancel")
        await until(client, thread, lambda glance: glance.status == "idle")
    await client.close(thread, "close")
    await until(client, thread, lambda glance: glance.status == "closed")


async def until(client: Client, thread: str, wanted: Callable[[Glance], bool]) -> None:
    while not wanted(await client.look(thread)):
        await asyncio.sleep(0.03)


def told(journal: Journal) -> list[str]:
    """The journal in words, without the order: what comes from two sides at once has none."""
    return sorted(_told(journal, entry) for entry in journal.entries)


def _told(journal: Journal, entry: JournalEntry) -> str:
    match entry:
        case UserSaid(text):
            return f"user {text[9:12]}"
        case ModelSaid(text, calls):
            made = "".join(f" and called {call.name} {call.arguments['key']}" for call in calls)
            return f'said "{text}"{made}'
        case Answered(call_id, _, text, subscription=subscription):
            return f"result of {call_id}: {'subscribed' if subscription else text}"
        case Happened(text=text, final=final, fate=fate):
            return f"event {text}, {fate}{', final' * final}"
        case ChildMade(thread_id, _, event):
            happened = journal.entries[event - 1]
            assert isinstance(happened, Happened)
            return f"child {thread_id[-1]} for {happened.text}"
        case ChildEnded(thread_id):
            return f"child {thread_id[-1]} closed"
        case Began(text=text):
            return f"began with {text}"
        case ChoiceAsked(call_id, prompt):
            return f"{call_id} asks {prompt}"
        case ChoiceMadeEntry(call_id, selected):
            return f"chosen {selected} for {call_id}"
        case Unsubscribed(call_id, reason):
            return f"{call_id} is over: {reason}"
        case ClosedEntry(by):
            return f"closed by {by}"
    return str(entry)
