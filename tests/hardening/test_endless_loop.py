"""A model that calls tools for ever."""

from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import ForeignServer, result

LOOP = """
- user: work
  calls: [work]
- answer: work
  calls: [work]
"""


def test_a_model_in_a_loop_is_stopped_and_a_message_lets_it_go_on(up: Up, join: Join) -> None:
    server = join(ForeignServer({"work": lambda call: [result(call, "Again.")]}))
    runtime = up(LOOP, [server.url], tables={"agent.limits": {"requests_per_message": 4}})

    thread = runtime.thread("work")

    runtime.until(thread, "The model was asked 4 times without anything new from outside")
    assert runtime.look(thread)["status"] == "parked"
    assert len(server.invocations("work")) == 4

    runtime.say(thread, "work")

    assert len(server.invocations("work", 8)) == 8
