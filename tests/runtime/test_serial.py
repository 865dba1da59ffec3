"""One message at a time per thread, many threads at once, and nothing of a thread in memory in between."""

import asyncio
import gc
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

from rapkit.kernel.completion import Question
from rapkit.kernel.entries import ModelSaid, UserSaid
from rapkit.kernel.thread import Pending, Thread
from rapkit.mailbox import Claim, Mail
from rapkit.runtime.slice import Slice
from tests.runtime.agents import ScriptedReplies, ThreadDriver, call, last_heard, please, working
from tests.runtime.foreign_toolset import ForeignToolset
from tests.runtime.processes import agent_process, from_outside, slices_in
from tests.server.served_toolset import until


class Watched:
    """Knows how often it is asked about one thread at once."""

    def __init__(self) -> None:
        self.obedient = ScriptedReplies()
        self.now: dict[str, int] = defaultdict(int)
        self.most: dict[str, int] = defaultdict(int)

    async def __call__(self, question: Question) -> object:
        name = question.conversation[0].texts[0]  # type: ignore[union-attr]
        self.now[name] += 1
        self.most[name] = max(self.most[name], self.now[name])
        for _ in range(5):
            await asyncio.sleep(0)
        self.now[name] -= 1
        return self.obedient(question)


async def test_however_much_comes_at_once_a_thread_does_one_thing_at_a_time(
    stranger: ForeignToolset, store: str
) -> None:
    """RUN-1: two engines on one file, and messages to both; all are heard, each once, in the order of their acceptance."""
    model = Watched()
    async with working(model, [stranger.url], store) as one, working(model, [stranger.url], store) as two:
        talk = await one.talk("begin")
        await asyncio.gather(
            *(each.threads.send(talk.id, f"message {n}") for n in range(40) for each in (one, two)),
        )
        await talk.until(UserSaid, 81)
        await one.quiet()

        assert model.most == {"begin": 1}
        entries = await talk.entries()
        said = [each.text for each in entries if isinstance(each, UserSaid)]
        assert sorted(said[1:]) == sorted(f"message {n}" for n in range(40) for _ in range(2))
        # Everything was heard by the end, and nothing is heard twice: what a completion heard lies before it.
        assert isinstance(entries[-1], ModelSaid)
        heard = [text for each in entries if isinstance(each, ModelSaid) for text in _new_texts(each.text)]
        assert heard == said


def _new_texts(reply: str) -> list[str]:
    return reply.removeprefix("heard: ").split(" | ")


async def test_results_and_messages_at_once_are_one_after_the_other(stranger: ForeignToolset, store: str) -> None:
    """RUN-1"""
    model = Watched()
    async with working(model, [stranger.url], store) as one, working(model, [stranger.url], store) as two:
        begin = please(*(call("work", n=n) for n in range(10)))
        talk = await one.talk(begin)
        invocations = [await stranger.invoked_with(n=n) for n in range(10)]

        await asyncio.gather(
            *(invocation.result(f"result {invocation.message['arguments']['n']}") for invocation in invocations),
            *(two.threads.send(talk.id, f"message {n}") for n in range(10)),
        )

        await talk.until_answers(10)
        await one.quiet()
        assert model.most == {begin: 1}
        assert (await talk.look()).thread.pending == {}


async def test_threads_run_side_by_side(stranger: ForeignToolset, store: str) -> None:
    """RUN-2: each model waits until all are asked, so one after the other would never end."""
    together = asyncio.Barrier(30)

    async def model(_question: Question) -> str:
        await together.wait()
        return "together"

    async with working(model, [stranger.url], store) as agent:
        talks = [await agent.talk("go") for _ in range(30)]
        for talk in talks:
            await talk.hears("together")


async def test_nothing_of_a_thread_stays_in_the_process(stranger: ForeignToolset, store: str) -> None:
    """RUN-8: while it waits for a call there is no object of it, and no task."""

    async def model(question: Question) -> object:
        return ScriptedReplies()(question)

    async with working(model, [stranger.url], store) as agent:
        await (await agent.talk("hello")).hears("hello")
        await agent.quiet()
        tasks = len(asyncio.all_tasks())
        before = {id(each) for each in _things_of_threads()}  # of other tests

        ids = [(await agent.doing(call("work", n=n))).id for n in range(20)]
        for n in range(20):
            await stranger.invoked_with(n=n)
        await agent.quiet()

        await until(lambda: all(id(each) in before for each in _things_of_threads()))
        # What else there is, are connections of the stranger's.
        await until(lambda: len([task for task in asyncio.all_tasks() if "Listener" not in repr(task)]) <= tasks)
        for number, thread_id in enumerate(ids):
            await (await stranger.invoked_with(n=number)).result("woken")
            await agent.thread(thread_id).hears("heard: woken")


def _things_of_threads() -> list[object]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, Thread | Pending | Claim | Mail | Slice)]


async def test_a_thread_is_continued_by_whichever_engine_is_there(stranger: ForeignToolset, store: str) -> None:
    """RUN-8"""
    async with working(ScriptedReplies(), [stranger.url], store) as one:
        talk = await one.doing(call("work", n=1))
        first = await stranger.invoked_with(n=1)
        await one.quiet()
    async with working(ScriptedReplies(), [stranger.url], store, port=one.port) as two:
        await first.result("for the second")
        await two.thread(talk.id).hears("heard: for the second")
        await two.thread(talk.id).do(call("work", n=2))
        second = await stranger.invoked_with(n=2)
        await two.quiet()
    async with working(ScriptedReplies(), [stranger.url], store, port=two.port) as three:
        await second.result("for the third")
        await three.thread(talk.id).hears("heard: for the third")


async def test_two_processes_never_run_one_thread_at_once(stranger: ForeignToolset, store: str, tmp_path: Path) -> None:
    """RUN-1, RUN-8: both at first, then the one that is not killed, then the other."""
    one, two = (agent_process(who, tmp_path, store, [stranger.url]) for who in ("one", "two"))
    try:
        one.start()
        two.start()
        await one.ready()
        await two.ready()
        async with from_outside(store) as threads:
            talks = [ThreadDriver(threads, await threads.create(text=f"t{number} begin")) for number in range(4)]
            await _sent(talks, range(20))
            await one.kill()
            await _sent(talks, range(20, 40))
            one.start()
            await one.ready()
            await two.kill()
            await _sent(talks, range(40, 60))
            for talk in talks:
                said = [each.text for each in await talk.all(UserSaid)]
                assert said[1:] == [f"message {number}" for number in range(60)]
    finally:
        one.clean_up()
        two.clean_up()

    by_thread: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for name, what, process in slices_in(tmp_path / "ledger"):
        by_thread[name].append((what, process))
    for lines in by_thread.values():
        # Who replies was asked last: nobody else was in between. Who was asked and is killed does not reply.
        for before, (what, process) in pairwise(lines):
            assert what == "asked" or before == ("asked", process)
        assert len({process for _, process in lines}) >= 2


async def _sent(talks: list[ThreadDriver], numbers: range) -> None:
    """Send messages to all of them at once, and return when the last ones are answered."""
    for number in numbers:
        await asyncio.gather(*(talk.say(f"message {number}") for talk in talks))
    for talk in talks:
        await talk.hears(f"message {numbers[-1]}")


async def test_a_process_that_stood_still_has_no_say_any_more(
    stranger: ForeignToolset, store: str, tmp_path: Path
) -> None:
    """RUN-1: another has taken its thread over; what it replies when it comes to itself leaves no trace."""
    frozen, other = (agent_process(who, tmp_path, store, [stranger.url]) for who in ("frozen", "other"))
    try:
        frozen.start()
        await frozen.ready()
        async with from_outside(store) as threads:
            talk = ThreadDriver(threads, await threads.create(text=f"t0 block {please(call('work'))}"))
            await until(lambda: len(slices_in(tmp_path / "ledger")) == 1)
            frozen.pause()
            other.start()
            await until(lambda: len(slices_in(tmp_path / "ledger")) == 2)
            (tmp_path / "ledger.release").touch()
            await talk.until(ModelSaid)
            frozen.resume()
            await until(lambda: [what for _, what, _ in slices_in(tmp_path / "ledger")].count("replied") == 2)
            await talk.say("still one?")
            await talk.hears("still one?")
            assert len(await talk.all(ModelSaid)) == 2
    finally:
        frozen.clean_up()
        other.clean_up()


async def test_thousands_of_threads_are_at_work_at_once(store: str) -> None:
    """RUN-2: each has asked the model and waits for it, in one process; then all are answered."""
    many = 2000
    everybody = asyncio.Event()
    asked = 0

    async def model(question: Question) -> str:
        nonlocal asked
        asked += 1
        if asked == many:
            everybody.set()
        await everybody.wait()
        return f"answer to {last_heard(question).texts[0]}"

    async with working(model, [], store) as agent:
        talks = [await agent.talk(f"question {number}") for number in range(many)]
        async with asyncio.timeout(60):
            await everybody.wait()
            await agent.quiet()

        for number in range(0, many, 97):
            said = await talks[number].hears(f"answer to question {number}")
            assert said.text == f"answer to question {number}"
