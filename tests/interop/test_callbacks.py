"""What our runtime answers to the callbacks of other people's servers, and what becomes of their calls (items 3 and 7)."""

import json
from typing import Any

import pytest

from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import ForeignServer, event, result
from tests.interop.http_peer import Json, eventually, post
from tests.interop.processes import OurRuntime

PLAN = """
- user: work
  calls: [work]
- answer: work
  say: "It is {answer}."
- event: work
  say: "Heard {text}."
- say: Fine.
"""

LARGE = "x" * (17 * 1024 * 1024)


def waiting(up: Up, join: Join) -> tuple[OurRuntime, ForeignServer, str, Json]:
    """A runtime with a thread that waits for a call of a foreign server."""
    server = join(ForeignServer({"work": lambda call: []}))
    runtime = up(PLAN, [server.url])
    thread = runtime.thread("work")
    (call,) = server.invocations("work", 1)
    return runtime, server, thread, call


def test_a_result_that_is_refused_ends_its_call_and_a_good_one_is_still_taken(up: Up, join: Join) -> None:
    """Item 3: 400, and the model is told why; servers that give up on a 4xx leave no call pending."""
    runtime, server, thread, call = waiting(up, join)

    assert server.send(call, {**result(call, "x"), "text": 42}) == 400
    assert server.send(call, {**result(call, "x"), "text": 42}) == 400

    runtime.until(thread, "its answer was refused: it is not a valid message")
    assert server.send(call, result(call, "after all")) == 200
    journal = runtime.until(thread, "after all")
    assert len([entry for entry in journal if entry["kind"] == "result"]) == 2


def test_a_result_that_is_too_large_ends_its_call(up: Up, join: Join) -> None:
    """Item 3: 413, and the model is told why."""
    runtime, server, thread, call = waiting(up, join)

    assert server.send(call, result(call, LARGE)) == 413

    runtime.until(thread, "its answer was refused: it is too large.")


def test_a_refusal_outlives_a_kill(up: Up, join: Join) -> None:
    """Item 3: what was to be told is on disk before the 413 is sent."""
    runtime, server, thread, call = waiting(up, join)

    assert server.send(call, result(call, LARGE)) == 413
    runtime.kill()
    runtime.start()

    runtime.until(thread, "its answer was refused: it is too large.")


def test_events_that_are_too_large_are_told_once_and_small_ones_go_on(up: Up, join: Join) -> None:
    """Item 3: the thread is told once per outage, and the subscription remains."""
    runtime, server, thread, call = waiting(up, join)
    assert server.send(call, result(call, "Watching.", subscription=True)) == 200
    runtime.until(thread, "Watching.")

    assert [server.send(call, event(call, LARGE)) for _ in range(3)] == [413] * 3
    runtime.until(thread, "An event was refused and is lost")
    assert server.send(call, event(call, "small", associative=True)) == 200

    journal = runtime.until(thread, "Heard small.")
    assert len([entry for entry in journal if entry["kind"] == "event"]) == 2


@pytest.mark.parametrize(
    ("fields", "shown"),
    [
        ({"text": None}, '"kind": "result"'),
        ({"text": None, "content": [{"type": "audio", "data": "x"}]}, "content of type audio"),
        ({"content": [{"type": "image", "data": "aGVs\nbG8", "mediaType": "image/png"}]}, "It is"),
        (
            {"text": "7", "display_as": [{"type": "chart", "content": 1}, {"type": "diff", "content": "no object"}]},
            "It is 7.",
        ),
        ({"text": "7", "call_id": 12}, "It is 7."),
    ],
    ids=["nothing", "audio", "base64", "display", "number"],
)
def test_what_is_usable_is_used(up: Up, join: Join, fields: Json, shown: str) -> None:
    """Item 3: fields that we do not know, or that are written otherwise, are no reason to refuse a result."""
    runtime, server, thread, call = waiting(up, join)

    assert server.send(call, {**result(call, "x"), **fields}) == 200

    runtime.until(thread, shown)


def test_half_a_surrogate_pair_does_not_make_a_result_unusable(up: Up, join: Join) -> None:
    """Item 3: Python and JavaScript write one as it is, from a file name or a cut text; it is replaced, and the rest is shown."""
    runtime, server, thread, call = waiting(up, join)

    assert server.send(call, result(call, "left \ud83d right")) == 200

    runtime.until(thread, "It is left ? right.")


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "9" * 5000], ids=["deep", "number"])
def test_a_result_that_no_parser_takes_ends_its_call(up: Up, join: Join, value: str) -> None:
    """Item 3: the ids before the value that cannot be read tell whose result it was."""
    runtime, _, thread, call = waiting(up, join)
    body = json.dumps(result(call, "x"))[:-1] + f', "extra": {value}}}'

    assert post(call["callback_url"], body.encode())[0] == 400

    runtime.until(thread, "its answer was refused: it is not a valid message")


def test_the_answers_to_callbacks_in_their_order(up: Up, join: Join) -> None:
    """Item 3: 404 the token, 413, 400, 404 the ids, 410 nothing live, 200."""
    runtime, _, thread, call = waiting(up, join)
    none_of_ours = {**call, "callback_url": call["callback_url"][:-3] + "abc"}
    another = {**call, "id": "another"}

    def send(to: Json, message: Any) -> int:
        return post(to["callback_url"], message)[0]

    assert send(none_of_ours, b"not even JSON") == 404
    assert send(none_of_ours, json.dumps(result(call, LARGE)).encode()) == 404
    assert send(call, json.dumps(result(another, LARGE)).encode()) == 413
    assert send(call, {**result(another, "x"), "text": 42}) == 400
    assert send(call, b"garbage") == 400
    assert send(call, result(another, "x")) == 404
    assert "result" not in [entry["kind"] for entry in runtime.history(thread)]
    assert send(call, result(call, "done")) == 200
    runtime.until(thread, "It is done.")
    assert send(call, result(call, "done")) == 200
    assert send(call, result(call, "another answer, which is ignored")) == 200
    assert send(call, event(call, "no subscription")) == 410
    runtime.close(thread)
    eventually(lambda: runtime.look(thread)["status"] == "closed")
    assert send(call, event(call, "closed")) == 410
    assert "ignored" not in json.dumps(runtime.history(thread))


def test_views_may_come_after_the_result(up: Up, join: Join) -> None:
    """Item 7: accepted and shown while the thread is open; the latest of each type; empty content clears it."""
    runtime, server, thread, call = waiting(up, join)
    assert server.send(call, result(call, "done")) == 200
    runtime.until(thread, "It is done.")

    def view(kind: str, content: Any) -> int:
        return server.send(
            call, {"type": "view_update", "group_id": call["group_id"], "view_type": kind, "content": content}
        )

    assert [view("board", 1), view("board", {"rows": [2]}), view("other", "x")] == [200] * 3
    eventually(lambda: runtime.look(thread)["views"] == {"board": {"rows": [2]}, "other": "x"})
    assert view("other", "") == 200
    eventually(lambda: runtime.look(thread)["views"] == {"board": {"rows": [2]}})
    runtime.close(thread)
    eventually(lambda: runtime.look(thread)["status"] == "closed")
    assert view("board", 3) == 410
