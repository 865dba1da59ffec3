"""Large messages that pile up for a thread while no worker runs: whoever starts next has memory for a few of them at a time only."""

import sqlite3
from contextlib import ExitStack, closing

from tests.hardening.memory import peak_memory
from tests.hardening.raw import Reply, connect, head
from tests.hardening.test_validation_bombs import MIB, SilentServer
from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import event, result
from tests.interop.http_peer import Json, eventually, get, post
from tests.interop.processes import OurRuntime

PLAN = """
- user: watch
  calls: [work]
- say: Fine.
"""
EVENTS = 60
SIZE = 4_000_000
MEMORY = 800 * MIB


def test_an_agent_that_finds_more_mail_than_it_has_memory_works_through_it(up: Up, join: Join) -> None:
    """240 MB took 900 MB of memory: with less, every start failed, and none of them was counted."""
    server = join(SilentServer())
    runtime = up(PLAN, [server.url], tables={"agent.capacity": {"callback": 4 * MIB, "mail": 8 * MIB}})
    thread = runtime.thread("watch")
    (call,) = server.invocations("work", 1)
    assert post(call["callback_url"], result(call, "Watching.", subscription=True))[0] == 200
    runtime.until(thread, "Watching.")
    runtime.stop()
    runtime.start("--no-worker")
    for number in range(EVENTS):
        assert post(call["callback_url"], _event(call, number))[0] == 200
    runtime.stop()
    assert _mail(runtime) == (EVENTS, 0)

    runtime.start(address_space=MEMORY)

    eventually(lambda: _mail(runtime) == (0, 0) and runtime.look(thread)["status"] == "idle")
    assert peak_memory(runtime) < 350 * MIB
    assert not any(words in runtime.log() for words in ("MemoryError", "out of memory"))

    # Who looks at all that takes a bit of it at a time, also if nothing of what is sent is read.
    runtime.stop()
    runtime.start(address_space=MEMORY)
    before = peak_memory(runtime)
    assert len(get(f"{runtime.url}/v1/threads/{thread}/history")[1]) > SIZE
    with ExitStack() as stack:
        for _ in range(3):
            follower = stack.enter_context(connect(runtime.url))
            follower.sendall(head("GET", f"{runtime.url}/v1/threads/{thread}/events"))
            assert Reply(follower).status == 200
            assert follower.recv(65536)
        assert peak_memory(runtime) - before < 120 * MIB


def _event(call: Json, number: int) -> Json:
    return event(call, f"{number} {'x' * SIZE}", associative=True, final=number == EVENTS - 1)


def _mail(runtime: OurRuntime) -> tuple[int, int]:
    """How many letters are stored, and how many of them are set aside."""
    (store,) = runtime.folder.rglob("agent.db")
    with closing(sqlite3.connect(store)) as db:
        found: tuple[int, int] = db.execute("SELECT count(*), count(set_aside) FROM mail").fetchone()
        return found
