"""What the lines of a journal look like."""

import re
from typing import Any, get_args

import pytest

from rapkit.cli.chat.block import plain
from rapkit.cli.chat.child_messages import LAST_WORDS, ChildMessage
from rapkit.cli.chat.journal_renderer import JournalRenderer, short_id
from rapkit.kernel import entries as kernel
from rapkit.kernel.entries import JournalEntry, MadeCall
from rapkit.protocol.content import Diff, DiffSegment, ImageContent, OtherSegment, TextContent, TextSegment
from rapkit.runtime.api.entries import document_of
from rapkit.runtime.event_feed import JournalLine

CALL = MadeCall("call_1", "deploy", {"version": "1.2"})
SHOWN = MadeCall("call_2", "forecast", {"city": "Oslo"}, display="Look at the sky over Oslo")
CHILD = "thr_0123456789abcdef-000001"
PARENT = "thr_0123456789abcdef"

LOOKS: list[tuple[JournalEntry, str]] = [
    (kernel.UserSaid("Hello\nthere", "msg_1"), "> Hello\n  there"),
    (kernel.WokenUp("daily", "9 o'clock", "Look around."), "@ daily, due 9 o'clock: Look around."),
    (
        kernel.ModelSaid("Let me see.", (SHOWN, CALL)),
        'Let me see.\n→ Look at the sky over Oslo\n→ deploy(version="1.2")',
    ),
    (kernel.Answered("call_1", "deploy", "done"), "← deploy: done"),
    # That the model was told "still running", because somebody said something meanwhile, makes nothing late for people.
    (kernel.Answered("call_1", "deploy", "done", late=True), "← deploy: done"),
    (
        kernel.Answered("call_1", "deploy", "1\n2\n3\n4\n5\n6\n7\n8"),
        "← deploy: 1\n  2\n  3\n  4\n  5\n  6\n  … 2 more lines",
    ),
    (
        kernel.Answered(
            "call_1",
            "deploy",
            content=(TextContent(text="Look:"), ImageContent(data="QUJD" * 1000, mediaType="image/png")),
        ),
        "← deploy: Look:\n  [image/png, 3 kB]",
    ),
    (
        kernel.Answered(
            "call_1",
            "deploy",
            "changed",
            display_as=(
                OtherSegment(type="hologram", content=1),
                DiffSegment(content=Diff(path="a.txt", patch="--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new")),
                TextSegment(content="never shown"),
            ),
        ),
        "← deploy:\n  a.txt\n  @@ -1 +1 @@\n  -old\n  +new",
    ),
    (kernel.Happened("call_1", "alerts", "Storm", final=True), "◇ alerts (the last one): Storm"),
    (kernel.Happened("call_1", "alerts", "Storm", fate="threaded"), "◇ alerts: Storm"),
    (
        kernel.Happened("call_1", "alerts", "Storm", fate="early"),
        "◇ alerts: an event came before the call was confirmed, and is kept",
    ),
    (kernel.Released((3, 4), "call_1", "alerts"), "◇ alerts: 2 kept events are shown"),
    (kernel.Unsubscribed("call_9", "it is over"), "◇ call_9: no more events: it is over"),
    (kernel.ChildMade(CHILD, "call_1", task="Find out"), "↳ child thread …abcdef-000001 made for: Find out"),
    (kernel.ChildMade(CHILD, "call_1", event=3), "↳ child thread …abcdef-000001 made for that event"),
    (kernel.ChildEnded(CHILD), "↳ child thread …abcdef-000001 was closed"),
    (kernel.Reported("r1", CHILD, "Found", closed=True), "↰ child thread …abcdef-000001 says, and is closed: Found"),
    (
        kernel.Began(PARENT, "call_1", "alerts", {"city": "Oslo"}, "Storm"),
        '◇ made for an event of alerts(city="Oslo"): Storm',
    ),
    (kernel.Tasked("t1", PARENT, "Find out"), "↳ task of thread …abcdef: Find out"),
    (kernel.ParentSaid("p1", PARENT, "Hurry"), "↳ thread …abcdef says: Hurry"),
    (kernel.ChoiceAsked("call_1", "Now?", ("Yes", "No"), 1), "? Now?\n  1 Yes\n  2 No (default)"),
    (kernel.ChoiceMadeEntry("call_1", selected=1), "✓ choice 2"),
    (kernel.ChoiceMadeEntry("call_1", text="Perhaps"), "✓ Perhaps"),
    (kernel.ChoiceMadeEntry("call_1", dismissed=True), "✗ dismissed"),
    (kernel.ChoiceMadeEntry("call_1", expired=True), "✗ nobody answered in time"),
    (kernel.AuthorizationAsked("call_9"), "! call_9 wants to be authorised by you."),
    (kernel.AuthorizationExpired("call_9"), "! call_9 was not authorised in time."),
    (kernel.ViewChanged("board"), "▤ [view board: new content]"),
    (kernel.Summary("Much was said.", 12), "… Everything up to line 12 was summed up for the model."),
    (kernel.GrantedEntry(slices=5, cost=0.5), "+ granted: 5 slices, 0.5 US dollars more"),
    (
        kernel.ToolsetMissing("http://a", "It is down."),
        "! the tools of http://a are missing; rapkit threads show says why",
    ),
    (kernel.ToolsetFound("http://a"), "+ the tools of http://a are available now"),
    (kernel.Failed("The model is ill."), "! The model is ill."),
    (kernel.ParkedEntry("it is ill"), "! The thread has stopped: it is ill\n  A new message revives it."),
    (kernel.ClosedEntry("user"), "- The thread was closed (by user)."),
    (kernel.Ignored("result", "nobody waits for it"), "- result had no effect: nobody waits for it"),
]


def document(entry: JournalEntry, seq: int = 1) -> dict[str, Any]:
    """An entry as clients get it."""
    return document_of(JournalLine(seq, 1_763_270_400.0, entry))


def shown(transcript: JournalRenderer, *entries: JournalEntry, width: int = 100) -> str:
    return plain([block for entry in entries for block in transcript.blocks(document(entry))], width)


@pytest.mark.parametrize(("entry", "looks"), LOOKS, ids=[f"{n}-{entry.kind}" for n, (entry, _) in enumerate(LOOKS)])
def test_each_kind_of_line_has_a_look(entry: JournalEntry, looks: str) -> None:
    assert shown(JournalRenderer(), entry) == looks


def test_no_kind_is_forgotten_and_unknown_ones_are_left_out() -> None:
    kinds = {kind.__dataclass_fields__["kind"].default for kind in get_args(JournalEntry)}
    assert {entry.kind for entry, _ in LOOKS} == kinds
    assert JournalRenderer().blocks({"seq": 1, "at": 0.0, "kind": "of tomorrow"}) == []


def test_calls_are_known_by_their_names_later() -> None:
    made = kernel.ModelSaid(calls=(CALL,))
    text = shown(
        JournalRenderer(), made, kernel.AuthorizationAsked("call_1"), kernel.Unsubscribed("call_1", "it is over")
    )
    assert text.endswith("! deploy wants to be authorised by you.\n◇ deploy: no more events: it is over")


def test_an_answer_is_shown_with_its_question_where_that_was_asked_elsewhere() -> None:
    asked, chosen = kernel.ChoiceAsked("call_1", "Now?", ("Yes", "No")), kernel.ChoiceMadeEntry("call_1", selected=0)
    transcript = JournalRenderer(asked_elsewhere=True)
    assert shown(transcript, asked) == ""
    assert shown(transcript, chosen) == "? Now?\n✓ Yes"
    assert shown(JournalRenderer(), asked, chosen) == "? Now?\n  1 Yes\n  2 No\n✓ Yes"


def test_an_answered_question_is_repeated_in_a_few_lines_but_asked_in_all() -> None:
    prompt = "\n".join(f"line {n}" for n in range(1, 31))
    asked, chosen = kernel.ChoiceAsked("call_1", prompt, ("Yes",)), kernel.ChoiceMadeEntry("call_1", selected=0)
    assert "  line 30\n  1 Yes" in shown(JournalRenderer(), asked)
    text = shown(JournalRenderer(asked_elsewhere=True), asked, chosen)
    assert text == "? line 1\n  line 2\n  line 3\n  line 4\n  … 26 more lines\n✓ Yes"


def test_only_an_answer_of_a_call_that_was_given_up_is_late() -> None:
    given_up = kernel.Answered("call_1", "deploy", "Error: No answer.", by="runtime")
    real = kernel.Answered("call_1", "deploy", "done", late=True)
    assert shown(JournalRenderer(), given_up, real).endswith("← deploy (late: it had been given up): done")


def test_what_a_child_said_is_shown_once() -> None:
    transcript = JournalRenderer()

    def said(seq: int, text: str) -> str:
        return plain(transcript.child_said(CHILD, ChildMessage(seq, text)), 80)

    assert said(2, "Let me look.") == "↳ child thread …abcdef-000001 said: Let me look."
    assert said(2, "Let me look.") == ""
    assert said(4, "1\n2\n3\n4") == "↳ child thread …abcdef-000001 said: 1\n  2\n  3\n  … 1 more line"
    closed = document(kernel.ChildEnded(CHILD))
    assert len(transcript.blocks({**closed, LAST_WORDS: ChildMessage(4, "1\n2\n3\n4")})) == 1
    assert [block.text for block in transcript.blocks({**closed, LAST_WORDS: ChildMessage(5, "Bye")})] == [
        "child thread …abcdef-000001 said: Bye",
        "child thread …abcdef-000001 was closed",
    ]
    shown(transcript, kernel.Reported("r1", CHILD, "Found it."))
    assert said(7, "Found it.") == ""


def test_news_of_some_time_ago_has_its_time() -> None:
    blocks = JournalRenderer().blocks(document(kernel.UserSaid("Hello")), with_time=True)
    assert re.fullmatch(r"\d\d:\d\d:\d\d > Hello", plain(blocks, 80))


def test_what_would_steer_the_terminal_is_not_printed() -> None:
    """A stranger's text: a tool's, or the model's."""
    text = shown(
        JournalRenderer(),
        kernel.ModelSaid("\x1b[2J\x07red\u202e", (MadeCall("c", "t", {"a": "\x1b[2J"}, display="\x1b]0;x\x07"),)),
        kernel.Answered("c", "t", "\x1b[31mred"),
        kernel.ChoiceAsked("c", "\x1b[2J?", ("\x9b2J",)),
    )
    assert all(new_mail.isprintable() or new_mail == "\n" for new_mail in text)


def test_ids_of_threads_are_short() -> None:
    assert short_id("thr_01a1e41e47a61db4dadabbc7815b") == "…c7815b"
    assert short_id("thr_01a1e41e47a61db4dadabbc7815b-000001-000002") == "…c7815b-000001-000002"


def test_progress_is_not_a_part_of_the_conversation() -> None:
    assert shown(JournalRenderer(), kernel.ViewChanged("progress")) == ""
