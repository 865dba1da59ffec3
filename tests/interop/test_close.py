"""Item 9: closing a thread ends what it has at servers that do not know `/close_thread`, and at no others."""

from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import ForeignServer, result
from tests.interop.http_peer import Json, eventually

PLAN = """
- user: watch
  calls: [watch]
- user: work
  calls: [work]
- answer: watch
  say: Watching.
- say: Fine.
"""


def _watch(call: Json) -> list[Json]:
    return [result(call, "Subscribed.", subscription=True)]


def _never(_: Json) -> list[Json]:
    return []


def test_a_server_that_lacks_close_thread_is_told_to_cancel(up: Up, join: Join) -> None:
    """Item 9: its subscriptions end, also where it answers the notice with 404, and another thread's go on."""
    server = join(ForeignServer({"watch": _watch, "work": _never}, statuses={"/close_thread": 404}))
    unused = join(ForeignServer({"unused": _never}, manifest={"name": "unused"}))
    runtime = up(PLAN, [server.url, unused.url])
    thread, other = runtime.thread("watch"), runtime.thread("watch")
    runtime.until(thread, "Watching.")
    runtime.until(other, "Watching.")
    runtime.say(thread, "work")
    (work,) = server.invocations("work", 1)
    ids = {call["group_id"]: call["id"] for call in server.invocations("watch", 2)}

    runtime.close(thread)

    told = server.notices("/cancel_tool_call", 2)
    assert {notice["thread_id"] for notice in told} == {thread}
    assert {notice["tool_call_id"] for notice in told} == {ids[thread], work["id"]}
    eventually(lambda: list(server.by_id) == [ids[other]])
    assert [notice["thread_id"] for notice in server.notices("/close_thread", 1)] == [thread]
    assert [notice["thread_id"] for notice in unused.notices("/close_thread", 1)] == [thread]
    assert unused.notices("/cancel_tool_call") == []


def test_a_subscription_that_is_confirmed_after_the_close_is_cancelled(up: Up, join: Join) -> None:
    """Item 9: the server was slow; its late confirmation is answered 410, and it is told to cancel, once."""
    server = join(ForeignServer({"watch": _never}))
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("watch")
    (call,) = server.invocations("watch", 1)
    runtime.close(thread)
    server.notices("/cancel_tool_call", 1)
    server.by_id[call["id"]] = call

    assert server.send(call, result(call, "Subscribed.", subscription=True)) == 410

    server.notices("/cancel_tool_call", 2)
    eventually(lambda: not server.by_id)
    assert server.send(call, result(call, "Subscribed again.", subscription=True)) == 410
    second = runtime.thread("watch")
    server.invocations("watch", 2)
    runtime.close(second)
    assert [notice["thread_id"] for notice in server.notices("/cancel_tool_call", 3)] == [thread, thread, second]


def test_an_agent_can_be_told_to_leave_that_to_the_servers(up: Up, join: Join) -> None:
    """Item 9: `cancel_on_close = false`."""
    server = join(ForeignServer({"watch": _watch}))
    runtime = up(PLAN, [server.url])
    runtime.stop()
    with (runtime.folder / "rapkit.toml").open("a") as settings:
        settings.write("[agent.limits]\ncancel_on_close = false\n")
    runtime.start()
    thread = runtime.thread("watch")
    runtime.until(thread, "Watching.")

    runtime.close(thread)

    server.notices("/close_thread", 1)
    other = runtime.thread("watch")  # and what is told of it comes after whatever was told of the first
    runtime.until(other, "Watching.")
    runtime.close(other)
    server.notices("/close_thread", 2)
    assert server.notices("/cancel_tool_call") == []
