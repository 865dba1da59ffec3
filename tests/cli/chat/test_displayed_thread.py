"""What is known of the thread on the screen."""

import re
import time
from typing import Any

from rapkit.cli.agent_api import StreamEvent
from rapkit.cli.chat.block import plain
from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.chat.toolbar import toolbar
from rapkit.cli.reconnecting_stream import ConnectionLost, Reconnected

DETAIL: dict[str, Any] = {
    "length": 1,
    "pending_calls": [],
    "subscriptions": [],
    "choices": [],
    "oauth": [],
    "children": [],
    "views": {},
}
QUESTION = {"call_id": "c1", "prompt": "Now?", "choices": ["Yes"], "default": None, "in_words": False, "asked_at": 1.0}


def entry(kind: str, **fields: Any) -> StreamEvent:
    return StreamEvent("entry", {"seq": 1, "at": 1_763_270_400.0, "kind": kind, **fields}, "1")


def told(displayed: DisplayedThread, *happened: StreamEvent | ConnectionLost | Reconnected) -> str:
    return plain([block for each in happened for block in displayed.take(each)], 80)


def below(displayed: DisplayedThread, width: int = 80) -> list[str]:
    return "".join(text for _, text in toolbar(displayed, 0, None, width)).split("\n")


def test_what_is_streamed_is_printed_once_with_its_entry() -> None:
    displayed = DisplayedThread("t")
    assert (
        told(displayed, StreamEvent("delta", {"text": "He"}, None), StreamEvent("delta", {"text": "llo"}, None)) == ""
    )
    assert displayed.saying == "Hello"
    assert told(displayed, entry("assistant", text="Hello.", calls=[])) == "Hello."
    assert displayed.saying == ""


def test_pieces_are_void_after_a_reset_and_when_the_agent_is_lost() -> None:
    displayed = DisplayedThread("t")
    for end in (StreamEvent("reset", {}, None), ConnectionLost("gone")):
        displayed.take(StreamEvent("delta", {"text": "He"}, None))
        assert displayed.saying == "He"
        displayed.take(end)
        assert displayed.saying == ""


def test_only_what_happened_while_the_agent_was_away_has_a_time() -> None:
    displayed = DisplayedThread("t")
    displayed.take(ConnectionLost("gone"))
    assert below(displayed)[0].startswith(" t · the agent is away for 0 s, trying again")
    text = told(displayed, Reconnected(), entry("user", text="Hello"))
    assert below(displayed) == [" t · … "]
    assert re.fullmatch(r"— the agent is back; it was away from [\d:]{8} to [\d:]{8} —\n\n[\d:]{8} > Hello", text)
    displayed.take(StreamEvent("status", {"status": "idle", "reason": None}, "1"))
    assert told(displayed, entry("user", text="Hello")) == "> Hello"


def test_a_question_is_open_until_it_is_answered_or_its_call_is() -> None:
    displayed = DisplayedThread("t")
    for end in (entry("chosen", call_id="c1", selected=0), entry("result", call_id="c1", name="n", text="cancelled")):
        displayed.take(StreamEvent("choice", QUESTION, "1"))
        assert [question.key for question in displayed.questions.values()] == [("c1", 1.0)]
        displayed.take(end)
        assert not displayed.questions
    displayed.look({**DETAIL, "choices": [QUESTION]})
    assert displayed.questions
    displayed.look(DETAIL)
    assert not displayed.questions


def test_a_look_from_before_a_question_was_asked_does_not_end_it() -> None:
    displayed = DisplayedThread("t")
    before = {**DETAIL, "length": 0}
    displayed.take(entry("choice", call_id="c1", prompt="Now?", choices=["Yes"]))
    displayed.take(StreamEvent("choice", QUESTION, "1"))
    displayed.look(before)
    assert displayed.questions
    displayed.take(entry("chosen", call_id="c1", selected=0))
    displayed.look({**before, "choices": [QUESTION]})
    assert not displayed.questions


def test_what_is_answered_or_over_is_not_pending_any_more() -> None:
    displayed = DisplayedThread("t")
    call = {"call_id": "c1", "name": "nap", "display": "nap()", "made_at": 0.0, "awaits": "tool", "until": None}
    displayed.look({**DETAIL, "pending_calls": [call], "subscriptions": [{**call, "call_id": "c2", "since": 0.0}]})
    assert len(below(displayed)) == 3
    displayed.take(entry("result", call_id="c1", name="nap", text="awake"))
    displayed.take(entry("unsubscribed", call_id="c2", reason="over"))
    assert below(displayed) == [" t · … "]


def test_a_link_is_shown_once() -> None:
    displayed = DisplayedThread("t")
    link = {"call_id": "c1", "auth_url": "https://example.com/consent"}
    assert told(displayed, StreamEvent("oauth", link, "1")).endswith("https://example.com/consent")
    assert displayed.look({**DETAIL, "oauth": [link]}) == []
    assert displayed.look({**DETAIL, "oauth": [{**link, "auth_url": "https://example.com/again"}]})


def test_relatives_that_ask_are_told_of_once() -> None:
    def relative(id: str, *children: dict[str, Any], asks: bool = False) -> dict[str, Any]:
        return {"thread_id": id, "asks_user": asks, "children": list(children)}

    displayed = DisplayedThread("thr_1")
    family = relative("thr_1", relative("thr_1-000001", relative("thr_1-000001-000001", asks=True)), asks=True)
    assert "/switch -000001-000001" in plain(displayed.look_at_family(family), 80)
    assert displayed.look_at_family(family) == []
    assert below(displayed)[-1] == " ? a child asks you: /switch -000001-000001"
    assert displayed.look_at_family(relative("thr_1")) == []
    assert below(displayed) == [" thr_1 · … "]


def test_the_toolbar_fits_a_narrow_screen_and_a_long_list() -> None:
    displayed = DisplayedThread("thr_0123456789abcdef")
    call = {"call_id": "c1", "name": "nap", "display": "A call " * 20, "made_at": 0.0, "awaits": "time", "until": 9.0}
    displayed.look({**DETAIL, "pending_calls": [call] * 9})
    for width in (20, 40, 80):
        lines = below(displayed, width)
        assert all(len(line) <= width for line in lines), lines
        assert len(lines) == 7
        assert lines[-1] == " … and 4 more"


def test_a_short_call_leaves_its_room_to_what_it_waits_for() -> None:
    displayed = DisplayedThread("t")
    call = {"call_id": "c1", "name": "mail", "display": "mail()", "made_at": time.time(), "awaits": "permission"}
    displayed.look({**DETAIL, "pending_calls": [{**call, "until": None}]})
    assert below(displayed, 40)[1] == " → mail()  0 s, needs your permission"


def progress(**content: Any) -> StreamEvent:
    return StreamEvent("view", {"view_type": "progress", "content": {"operation": "brew", **content}}, "1")


def test_how_far_a_call_has_come_stands_beside_it() -> None:
    displayed = DisplayedThread("t")
    now = time.time()
    call = {"call_id": "c1", "name": "brew", "display": "brew()", "made_at": now, "awaits": "tool", "until": None}
    other = {"call_id": "c2", "name": "watch", "display": "watch()", "since": now}
    before = {"progress": {"call_id": "c1", "operation": "brew", "done": 2, "total": 6}}
    displayed.look({**DETAIL, "pending_calls": [call], "subscriptions": [other], "views": before})
    assert below(displayed)[1:] == [" → brew()  0 s, ███░░░░░░░ 2/6", " ◇ watch()  for 0 s"]

    assert (
        told(displayed, entry("view", view_type="progress"), progress(call_id="c1", done=3, total=6, note="brew")) == ""
    )
    assert below(displayed)[1] == " → brew()  0 s, █████░░░░░ 3/6 brew"
    assert below(displayed, 27)[1] == " → brew()  0 s, 3/6 brew"  # no room for a bar
    displayed.look({**DETAIL, "pending_calls": [call], "views": before})  # it was on its way while the stream went on
    assert below(displayed)[1] == " → brew()  0 s, █████░░░░░ 3/6 brew"

    displayed.take(progress(call_id="c2", done=7, note="\x1b[2J" + "letters " * 99))
    displayed.look({**DETAIL, "pending_calls": [call], "subscriptions": [other]})
    assert below(displayed, 40)[2].startswith(" ◇ watch()  for 0 s, 7 \ufffd[2Jletters")
    assert all(len(line) <= 40 for line in below(displayed, 40))


def test_a_view_of_that_name_that_says_something_else_is_left_alone() -> None:
    displayed = DisplayedThread("t")
    strange: list[Any] = [None, [], "half", {"done": 1}, {"call_id": ["c1"], "done": 1}, {"call_id": "c1", "done": "1"}]
    for content in strange:
        displayed.take(StreamEvent("view", {"view_type": "progress", "content": content}, "1"))
        displayed.look({**DETAIL, "views": {"progress": content}})
    displayed.take(StreamEvent("view", {"view_type": "board", "content": {"call_id": "c1", "done": 1}}, "1"))
    displayed.take(StreamEvent("view", {"view_type": {}, "content": 1}, "1"))
    assert displayed.progress == {}


def test_a_callback_that_was_refused_is_told_of_once() -> None:
    displayed = DisplayedThread("t")
    call = {"call_id": "c1", "name": "watch", "callback_problem": "A callback was refused (401)."}

    assert plain(displayed.look({**DETAIL, "pending_calls": [call]}), 80) == "! watch: A callback was refused (401)."
    assert displayed.look({**DETAIL, "pending_calls": [call]}) == []
    assert displayed.look({**DETAIL, "pending_calls": [{**call, "callback_problem": None}]}) == []
    assert displayed.look({**DETAIL, "subscriptions": [call]}) != []
