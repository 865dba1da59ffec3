"""Foreign tool servers whose toolsets are odd, outdated or out of reach."""

import json
import sqlite3
from contextlib import closing
from typing import Any

import pytest

from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import ForeignServer, describe, result
from tests.interop.http_peer import Answer, Json, Received, post

PLAN = """
- user: add
  calls: [add: {a: 1}]
- answer: add
  say: "It is {answer}."
- say: Fine.
"""


def three(call: Json) -> list[Json]:
    return [result(call, "3")]


class Upgraded(ForeignServer):
    """Knows only toolset version "2", which its manifest shows after the first 409 if `admits` is set."""

    def __init__(self, *, admits: bool) -> None:
        super().__init__({"add": three}, manifest={"version": "1"})
        self._admits = admits

    def answer(self, request: Received) -> Answer:
        """Refuse every other version."""
        if request.path == "/run" and request.json.get("toolset_version") != "2":
            if self._admits:
                self.manifest["version"] = "2"
            return Answer(409, b"toolset version conflict")
        return super().answer(request)


def test_a_call_refused_as_outdated_is_sent_again_with_the_new_version(up: Up, join: Join) -> None:
    """Item 11: DIS-10."""
    server = join(Upgraded(admits=True))
    runtime = up(PLAN, [server.url])

    runtime.until(runtime.thread("add"), "It is 3.")

    assert [call["toolset_version"] for call in server.invocations()] == ["1", "2"]


def test_a_call_refused_as_outdated_is_not_sent_again_with_the_same_version(up: Up, join: Join) -> None:
    """Item 11: a 4xx is not retried (INV-5), and the model is told that the call was not executed."""
    server = join(Upgraded(admits=False))
    runtime = up(PLAN, [server.url])

    thread = runtime.thread("add")

    journal = runtime.until(thread, "It is Error: ")
    (refused,) = [entry for entry in journal if entry["kind"] == "result"]
    assert "refuses the call as outdated" in refused["text"]
    assert "nothing was executed" in refused["text"]
    assert len(server.invocations()) == 1


class Odd(ForeignServer):
    """Answers discovery without a content type, with a manifest as it is given."""

    def __init__(self, **manifest: Any) -> None:
        super().__init__({"add": three}, manifest=manifest)

    def answer(self, request: Received) -> Answer:
        """Leave the content type out; take invocations at the base URL too."""
        if request.path == "/.well-known/rap-toolset":
            return Answer(200, json.dumps(self.manifest).encode())
        return super().answer(request)

    def after(self, request: Received, answer: Answer) -> None:
        """Run the tool, whichever path it was called on."""
        if request.method == "POST" and request.path in ("/", ""):
            self._run(request.json)
        super().after(request, answer)


ADD = describe("add", inputSchema={"type": "object", "properties": {"a": {}}, "required": []})

ODD: dict[str, dict[str, Any]] = {
    "an integer version": {"version": 3},
    "annotations that are no booleans": {"tools": [ADD | {"annotations": {"readOnly": "yes", "destructive": 0}}]},
    "a script that is none": {"tools": [ADD | {"displayScript": {"lang": "rhai"}}]},
    "no name": {"name": None},
    "an unusable tool beside a good one": {"tools": [ADD, describe("not a name"), describe("bad", inputSchema=[]), 7]},
    "an empty list of required arguments": {"tools": [ADD]},
}


@pytest.mark.parametrize("manifest", ODD.values(), ids=ODD.keys())
def test_a_toolset_with_odd_parts_is_used(up: Up, join: Join, manifest: dict[str, Any]) -> None:
    """Item 12: what is wrong is ignored; the usable tools are called."""
    server = join(Odd(**manifest))
    runtime = up(PLAN, [server.url])

    runtime.until(runtime.thread("add"), "It is 3.")

    assert "toolset_version" not in server.invocations()[0]


def test_an_endpoint_that_is_the_base_url_is_called(up: Up, join: Join) -> None:
    """Item 12: wire, "what real peers do"."""
    server = join(Odd())
    server.manifest["endpoint"] = server.url
    runtime = up(PLAN, [server.url])

    runtime.until(runtime.thread("add"), "It is 3.")


def test_an_endpoint_on_another_host_is_called_and_notices_go_to_the_base(up: Up, join: Join) -> None:
    """Item 12: wire, "what real peers do"."""
    elsewhere = join(ForeignServer({"add": three}))
    server = join(Odd(endpoint=f"http://localhost:{elsewhere.port}/run"))
    runtime = up(PLAN, [server.url])

    thread = runtime.thread("add")
    runtime.until(thread, "It is 3.")
    runtime.close(thread)

    assert server.notices("/close_thread", 1) == [{"thread_id": thread}]
    assert len(elsewhere.invocations()) == 1
    assert elsewhere.notices("/close_thread") == []


def test_a_server_that_cannot_be_asked_is_told_of_in_the_journal_and_the_api(up: Up, join: Join) -> None:
    """Item 13: DIS-12; what is missing and why, and when it is back, in a later session and in this one."""
    server = join(ForeignServer({"add": three}, statuses={"/.well-known/rap-toolset": 500}))
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("hello")
    journal = runtime.until(thread, "Fine.")
    (missing,) = [entry for entry in journal if entry["kind"] == "toolset_missing"]
    assert missing["server"] == server.url
    assert "answered 500" in missing["reason"]
    assert runtime.look(thread)["missing_toolsets"] == [{"server": server.url, "reason": missing["reason"]}]

    runtime.say(thread, "add")
    runtime.until(thread, f"The tools of {server.url} are missing.")
    server.statuses.clear()
    runtime.stop()
    runtime.start()  # which asks at once; a running agent asks again after half a minute
    runtime.until(runtime.thread("add"), "It is 3.")
    runtime.say(thread, "add")

    journal = runtime.until(thread, "It is 3.")
    told = [entry["kind"] for entry in journal if entry["kind"].startswith("toolset_")]
    assert told == ["toolset_missing", "toolset_found"]
    assert runtime.look(thread)["missing_toolsets"] == []


def test_a_message_to_a_thread_whose_state_cannot_be_loaded_is_refused(up: Up, join: Join) -> None:
    """Item 13: RUN-3; the user and the tool server get 503, and nothing is acknowledged."""
    server = join(ForeignServer({"add": lambda _: []}))
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("add")
    (call,) = server.invocations(count=1)
    runtime.stop()
    (file,) = [path for path in runtime.folder.rglob("*.db") if path.is_file()]
    with closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE boxes SET state = ? WHERE id = ?", (b"damaged", thread))
    runtime.start()

    assert server.send(call, result(call, "3")) == 503
    assert post(f"{runtime.url}/v1/threads/{thread}/messages", {"text": "hello?"})[0] == 503
    runtime.until(runtime.thread("hello"), "Fine.")  # others go on
