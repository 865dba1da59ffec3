"""Item 1: the ids of calls are unique over all threads, children and agents: foreign servers key everything by the bare id."""

import json
import re
import shutil

from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import ForeignServer, event, result
from tests.interop.http_peer import Json, eventually

PLAN = """
- user: watch
  calls: [watch]
- user: report
  calls: [report]
- user: stop
  calls: [cancel_subscription: {tool_call_id: "{calls[watch]}"}]
- user: two children
  calls: [{spawn_thread: {task: watch one}}, {spawn_thread: {task: watch two}}]
- task: watch
  calls: [watch]
- answer: cancel_subscription
  say: "Stopped: {answer}"
- answer: report
  say: "Reported: {answer}"
- answer: watch
  say: Watching.
- event: watch
  say: "Heard {text}."
- say: Fine.
"""


class Bystander(ForeignServer):
    """Keeps subscriptions and OAuth flows by the bare id: the same id twice overwrites the first."""

    def __init__(self) -> None:
        super().__init__({"watch": self._watch, "report": self._report})
        self.flows: dict[str, Json] = {}

    def _watch(self, invocation: Json) -> list[Json]:
        return [result(invocation, "Watching.", subscription=True)]

    def _report(self, invocation: Json) -> list[Json]:
        self.flows[invocation["id"]] = invocation
        auth = {"type": "oauth", "auth_url": f"https://login.example/?state={invocation['id']}"}
        return [{**auth, "group_id": invocation["group_id"], "id": invocation["id"]}]

    def authorised(self, state: str) -> None:
        """The provider sends the user back with the state it was given, and the report goes to where the flow began."""
        flow = self.flows.pop(state)
        self.send(flow, result(flow, f"the report of {flow['group_id']}"))

    def happens(self, id: str, text: str) -> int:
        """Tell the subscription that is kept under an id."""
        return self.send(self.by_id[id], event(self.by_id[id], text, associative=True))


def test_a_subscription_of_one_thread_is_no_other_threads(up: Up, join: Join) -> None:
    """INV-19. Item 1: two threads subscribe, one cancels; the other goes on, and each has heard its own events."""
    server = join(Bystander())
    runtime = up(PLAN, [server.url])
    one, two = runtime.thread("watch"), runtime.thread("watch")
    runtime.until(one, "Watching.")
    runtime.until(two, "Watching.")
    ids = {call["group_id"]: call["id"] for call in server.invocations("watch", 2)}
    assert sorted(server.by_id) == sorted(ids.values())

    assert server.happens(ids[one], "storm one") == 200
    assert server.happens(ids[two], "storm two") == 200
    assert "storm two" not in json.dumps(runtime.until(one, "Heard storm one."))
    assert "storm one" not in json.dumps(runtime.until(two, "Heard storm two."))

    runtime.say(one, "stop")
    runtime.until(one, "Stopped: The subscription")
    server.notices("/cancel_tool_call", 1)
    eventually(lambda: list(server.by_id) == [ids[two]])
    assert server.happens(ids[two], "another storm") == 200
    runtime.until(two, "Heard another storm.")


def test_an_oauth_flow_ends_in_the_thread_that_began_it(up: Up, join: Join) -> None:
    """Item 1: the state of both flows is the bare id, and each user's report goes to that user's thread."""
    server = join(Bystander())
    runtime = up(PLAN, [server.url])
    one, two = runtime.thread("report"), runtime.thread("report")
    ids = {call["group_id"]: call["id"] for call in server.invocations("report", 2)}
    eventually(lambda: len(server.flows) == 2)

    server.authorised(ids[two])
    server.authorised(ids[one])

    runtime.until(one, f"Reported: the report of {one}")
    runtime.until(two, f"Reported: the report of {two}")


def test_children_that_are_made_at_once_have_ids_of_their_own(up: Up, join: Join) -> None:
    """Item 1: both subscribe with the call of the same number, and closing one ends nothing of the other's."""
    server = join(Bystander())
    runtime = up(PLAN, [server.url])
    runtime.thread("two children")
    first, second = server.invocations("watch", 2)
    eventually(lambda: len(server.by_id) == 2)

    assert first["group_id"] != second["group_id"]
    assert first["id"].partition("_")[0] == second["id"].partition("_")[0]  # they have inherited the same calls
    runtime.close(first["group_id"])
    runtime.until(first["group_id"], "closed")

    assert server.happens(second["id"], "storm") == 200
    runtime.until(second["group_id"], "Heard storm.")


def test_the_id_is_ours_and_the_models_own_comes_along(up: Up, join: Join) -> None:
    """Item 1: it tells nothing of the thread; the journal has both ids, and the model is shown the one on the wire."""
    server = join(Bystander())
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("watch")
    (call,) = server.invocations("watch", 1)
    journal = runtime.until(thread, "Watching.")

    assert re.fullmatch(r"c1_[a-z2-7]{16}", call["id"])
    (made,) = [made for entry in journal for made in entry.get("calls") or ()]
    assert (made["id"], made["provider_id"]) == (call["id"], call["call_id"])


def test_a_restored_agent_never_uses_an_id_again(up: Up, join: Join) -> None:
    """Item 1: the threads of a restored store go on with numbers that were used before, and with other ids; twice, too."""
    server = join(Bystander())
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("hello")
    runtime.until(thread, "Fine.")
    runtime.stop()
    store = runtime.folder / ".rapkit"
    shutil.copytree(store, runtime.folder / "backup")

    for times in (1, 2, 3):
        runtime.start()
        runtime.say(thread, "watch")
        runtime.until(thread, "Watching.")
        assert len(server.invocations("watch", times)) == times
        runtime.kill()
        shutil.rmtree(store)
        shutil.copytree(runtime.folder / "backup", store)

    ids = [call["id"] for call in server.invocations("watch")]
    assert [id.partition("_")[0] for id in ids] == ["c1", "c1", "c1"]
    assert len(set(ids)) == 3
