"""A model that follows a script: what it hears, what it says."""

import re
from pathlib import Path
from typing import Any

import pytest

from rapkit.errors import ConfigError
from rapkit.kernel.completion import Question, Reply, Usage, WantedCall
from rapkit.kernel.conversation import ToolAnswer
from rapkit.models import Model, ModelError
from rapkit.models.scripted import Scripted
from rapkit.protocol import TextContent
from tests.models.conversations import answer, ask, call, heard, question, said

Rules = list[dict[str, Any]]

WATCHING = (
    "Watch Oslo",
    said(call("s1", "watch", city="Oslo")),
    heard(answer("s1", "Subscribed.", "watch")),
    said(text="I watch."),
)
EVENT = said(call("e1", "watch", city="Oslo", kind="interrupt:s1 (subscription remains active)"))


async def reply(rules: Rules, asked: Question) -> Reply:
    return (await ask(Scripted.from_rules(rules), asked)).reply


async def says(rules: Rules, asked: Question) -> str:
    return (await reply(rules, asked)).text


async def test_a_text_is_contained_whatever_its_case() -> None:
    assert await says([{"user": "HELLO", "say": "Hi!"}], question("oh, hello there")) == "Hi!"


async def test_a_text_can_be_meant_literally() -> None:
    rules: Rules = [{"user": {"is": "hello"}, "say": "exactly"}, {"user": {"contains": "hello"}, "say": "somewhere"}]
    assert await says(rules, question("hello")) == "exactly"
    assert await says(rules, question("Hello!")) == "somewhere"


async def test_a_regular_expression_gives_its_groups_to_the_reply() -> None:
    rule = {"user": {"regex": r"in (\w+) on (?P<day>\w+)"}, "say": "{match[1]}/{match[day]}/{match[0]}/{match[9]}"}
    assert await says([rule], question("Rain in Oslo on Monday?")) == "Oslo/Monday/in Oslo on Monday/"


async def test_calls_are_made_with_arguments_filled_in() -> None:
    rule = {
        "user": {"regex": r"(\d+) days in (\w+)"},
        "say": "Let me look.",
        "calls": [
            {"forecast": {"city": "{match[2]}", "days": "{match[1]:json}", "tags": [["{text}"], {"n": 1}]}},
            "now",
        ],
    }
    made = await reply([rule], question("3 days in Oslo"))
    assert made.text == "Let me look."
    assert made.calls == (
        WantedCall("call_0_0", "forecast", {"city": "Oslo", "days": 3, "tags": [["3 days in Oslo"], {"n": 1}]}),
        WantedCall("call_0_1", "now", {}),
    )


async def test_answers_are_told_apart_by_tool_and_text() -> None:
    rules: Rules = [
        {"answer": "forecast", "text": "rain", "say": "Take an umbrella: {answer}"},
        {"answer": "forecast", "say": "No umbrella: {text}"},
        {"answer": "other", "say": "never"},
    ]
    for weather, expected in [("rain", "Take an umbrella: rain"), ("sun", "No umbrella: sun")]:
        assert await says(rules, question("Hi", said(call("c1")), heard(answer("c1", weather)))) == expected


async def test_an_event_is_not_an_answer_and_names_its_subscription() -> None:
    rules: Rules = [
        {"answer": "watch", "say": "subscribed as {call_id}"},
        {"event": "watch", "text": "storm", "calls": [{"cancel_subscription": {"id": "{call_id}"}}]},
        {"event": "watch", "say": "event {count}: {text}"},
    ]
    assert await says(rules, question(*WATCHING[:3])) == "subscribed as s1"
    rain = (EVENT, heard(answer("e1", "rain", "watch")))
    assert await says(rules, question(*WATCHING, *rain)) == "event 1: rain"
    assert await says(rules, question(*WATCHING, *rain, said(text="Oh."), *rain)) == "event 2: rain"
    storm = await reply(rules, question(*WATCHING, EVENT, heard(answer("e1", "storm", "watch"))))
    assert storm.calls == (WantedCall("call_3_0", "cancel_subscription", {"id": "s1"}),)


async def test_a_user_can_have_a_subscription_cancelled_by_its_tool() -> None:
    rules: Rules = [{"user": "stop", "calls": [{"cancel_subscription": {"id": "{calls[watch]}", "last": "{call_id}"}}]}]
    asked = question(*WATCHING, EVENT, heard(answer("e1", "rain", "watch")), said(text="Rain."), "stop")
    (wanted,) = (await reply(rules, asked)).calls
    assert wanted.arguments == {"id": "s1", "last": "s1"}


async def test_a_late_answer_is_an_answer_to_its_own_call() -> None:
    late = said(call("x2", "forecast", kind="result:c1 (the call is finished)"))
    asked = question("Hi", said(call("c1")), heard(answer("c1", "still running")), late, heard(answer("x2", "dry")))
    assert await says([{"answer": "forecast", "say": "{call_id}: {answer}"}], asked) == "c1: dry"


TASK = (
    said(call("note_1", "spawn_thread", kind="task:thr_1 (from the parent thread)")),
    heard(
        ToolAnswer("note_1", "spawn_thread", (TextContent(text="What a task is."), TextContent(text="look at Oslo")))
    ),
)
REPORT = (
    said(call("note_2", "spawn_thread", task="look at Oslo", kind="report:thr_1-000001 (open)")),
    heard(answer("note_2", "It rains.", "spawn_thread")),
)
MESSAGE = (
    said(call("note_3", "spawn_thread", kind="message:thr_1 (from the parent thread)")),
    heard(answer("note_3", "How far are you?", "spawn_thread")),
)


async def test_what_other_threads_say_is_told_apart_and_names_them() -> None:
    rules: Rules = [
        {"answer": "spawn_thread", "say": "never"},
        {"user": "Oslo", "say": "never"},
        {"task": {"is": "look at Oslo"}, "say": "task of {call_id}: {text}"},
        {"parent": {"regex": "How (\\w+)"}, "say": "{call_id} asks how {match[1]}"},
        {"report": "rain", "calls": [{"send_message_to_child": {"thread_id": "{call_id}", "text": "{text}"}}]},
        {"report": "sun", "say": "never"},
    ]
    assert await says(rules, question("Hi", *TASK)) == "task of thr_1: look at Oslo"
    assert await says(rules, question("Hi", *TASK, said(text="."), *MESSAGE)) == "thr_1 asks how far"
    (wanted,) = (await reply(rules, question("Hi", *REPORT))).calls
    assert wanted.arguments == {"thread_id": "thr_1-000001", "text": "It rains."}


async def test_a_call_that_makes_a_thread_is_answered_like_any() -> None:
    made = (
        said(call("c1", "spawn_thread", task="look at Oslo")),
        heard(answer("c1", "It works on it.", "spawn_thread")),
    )
    rules: Rules = [{"report": "", "say": "never"}, {"answer": "spawn_thread", "say": "{call_id}: {answer}"}]
    assert await says(rules, question("Hi", *made)) == "c1: It works on it."


async def test_words_of_other_threads_are_counted() -> None:
    rules: Rules = [{"report": "", "nth": 2, "say": "the second"}, {"report": "", "say": "report {count}"}]
    assert await says(rules, question("Hi", *REPORT)) == "report 1"
    assert await says(rules, question("Hi", *REPORT, said(text="."), *REPORT)) == "the second"
    assert await says(rules, question("Hi", *REPORT, said(text="."), *TASK, said(text="."), *REPORT)) == "the second"


@pytest.mark.parametrize(
    ("turns", "heard_last"),
    [
        (TASK, 'the parent thread gave the task "look at Oslo"'),
        (MESSAGE, 'the parent thread said "How far are you?"'),
        (REPORT, 'a child thread said "It rains."'),
    ],
    ids=["task", "parent", "report"],
)
async def test_without_a_rule_it_says_which_thread_it_heard(turns: tuple[Any, ...], heard_last: str) -> None:
    told = await says([{"user": "hi", "say": "hi"}], question("Hi", *turns))
    assert told == f"The script has no rule for what I heard last: {heard_last}."


async def test_a_summary_is_made_without_a_rule() -> None:
    asked = Question("Sum it up.", question("Hi", said(text="Ho"), "Now").conversation, (), for_summary=True)
    summed = await Scripted.from_rules([{"fail": "never"}]).complete(asked, lambda _: None)
    assert (summed.text, summed.calls) == ("(3 turns were said.)", ())


def test_it_has_no_window_unless_it_is_given_one() -> None:
    assert Scripted.from_rules([{"say": "x"}]).context_window is None
    assert Scripted(lambda asked: "x").context_window is None


async def test_a_tools_own_argument_called_kind_makes_no_event() -> None:
    asked = question("Hi", said(call("c1", kind="type:rain")), heard(answer("c1", "dry")))
    assert await says([{"answer": "forecast", "say": "{call_id} {calls[forecast]}"}], asked) == "c1 c1"


async def test_what_the_user_writes_comes_before_answers_that_came_with_it() -> None:
    rules: Rules = [{"answer": "forecast", "say": "answer"}, {"user": {"regex": "."}, "say": "the user"}]
    asked = question("Hi", said(call("c1")), heard(answer("c1", "still running"), texts=("Well?",)))
    assert await says(rules, asked) == "the user"
    assert 'no rule for what I heard last: the user said "Well?"' in await says(rules[:1], asked)


async def test_of_several_answers_the_newest_with_a_rule_counts() -> None:
    rules: Rules = [{"answer": "a", "say": "a"}, {"answer": "b", "say": "all: {answers}"}]
    asked = question(
        "Hi",
        said(call("1", "a"), call("2", "b"), call("3", "c")),
        heard(answer("1", "one", "a"), answer("2", "two", "b"), answer("3", "three", "c")),
    )
    assert await says(rules, asked) == "all: one\ntwo\nthree"


async def test_once_and_the_nth_time() -> None:
    rules: Rules = [
        {"user": "hi", "once": True, "say": "first"},
        {"user": "hi", "nth": 3, "say": "third"},
        {"user": "hi", "say": "again"},
    ]
    turns: list[Any] = ["hi"]
    heard_back = []
    for _ in range(4):
        heard_back.append(await says(rules, question(*turns)))
        turns += [said(text="…"), "hi"]
    assert heard_back == ["first", "again", "third", "again"]


async def test_the_first_time_is_found_among_answers_that_come_together() -> None:
    asked = question("Hi", said(call("1"), call("2")), heard(answer("1", "one"), answer("2", "two")))
    assert await says([{"answer": "forecast", "once": True, "say": "{text}"}], asked) == "one"


async def test_it_says_the_same_in_another_process() -> None:
    rules: Rules = [{"user": "hi", "nth": 2, "say": "twice", "calls": ["now"]}]
    asked = question("hi", said(text="."), "hi")
    assert await reply(rules, asked) == await reply(rules, asked)


async def test_a_rule_about_nothing_in_particular_fits_everything() -> None:
    rules: Rules = [{"user": "hi", "say": "hi"}, {"say": "What?"}]
    assert await says(rules, question("ho")) == "What?"
    assert await says(rules, question("ho", said(call("1")), heard(answer("1", "x")))) == "What?"


async def test_without_a_rule_it_says_what_it_heard() -> None:
    rules: Rules = [{"user": "hi", "say": "hi"}]
    assert await says(rules, question("ho")) == 'The script has no rule for what I heard last: the user said "ho".'
    asked = question(*WATCHING, EVENT, heard(answer("e1", "rain", "watch")))
    assert await says(rules, asked) == 'The script has no rule for what I heard last: watch told "rain".'


async def test_braces_that_are_no_places_are_text() -> None:
    rule = {"user": "hi", "say": '{"a": {"b": 1}} {{text}} {text}'}
    assert await says([rule], question("hi")) == '{"a": {"b": 1}} {text} hi'


async def test_what_is_filled_in_is_not_filled_in_again() -> None:
    assert await says([{"say": "{text}"}], question("{call_id}")) == "{call_id}"


async def test_usage_is_as_written() -> None:
    rule = {"say": "x", "usage": {"input_tokens": 7, "output_tokens": 2, "cost": 0.5}}
    assert (await reply([rule], question("hi"))).usage == Usage(1, 7, 2, 0.5)
    assert (await reply([{"say": "x"}], question("hi"))).usage == Usage(1)


async def test_text_can_be_streamed_word_by_word() -> None:
    model = Scripted.from_rules([{"say": "one two  three\n", "stream": True, "delay": 0.001}])
    assert (await ask(model, question("hi"))).pieces == ["one", " two", "  three", "\n"]
    assert (await ask(Scripted.from_rules([{"say": "one two"}]), question("hi"))).pieces == ["one two"]


async def test_it_fails_as_often_as_told_and_then_speaks() -> None:
    model = Scripted.from_rules([{"user": "hi", "fail": "Too busy.", "times": 2, "retry_after": 3, "say": "Hello."}])
    for _ in range(2):
        with pytest.raises(ModelError, match=re.escape("Too busy.")) as caught:
            await ask(model, question("hi"))
        assert (caught.value.retryable, caught.value.retry_after) == (True, 3)
    assert (await ask(model, question("hi"))).reply.text == "Hello."


async def test_a_rule_that_has_failed_enough_leaves_the_word_to_the_next() -> None:
    model = Scripted.from_rules([{"fail": "No.", "times": 1}, {"say": "Yes."}])
    with pytest.raises(ModelError):
        await ask(model, question("hi"))
    assert (await ask(model, question("hi"))).reply.text == "Yes."


async def test_it_can_fail_for_good() -> None:
    model = Scripted.from_rules([{"fail": "Never.", "retryable": False, "say": "unheard"}])
    for _ in range(3):
        with pytest.raises(ModelError) as caught:
            await ask(model, question("hi"))
        assert not caught.value.retryable


async def test_a_function_can_be_the_model() -> None:
    async def slowly(asked: Question) -> Reply:
        return Reply(calls=(WantedCall("c", asked.tools[0].name, None, "broken"),))

    plain = Scripted(lambda asked: f"{len(asked.conversation)} turns", name="counting")
    assert isinstance(plain, Model)
    said_plainly = (await ask(plain, question("hi"))).reply
    assert (said_plainly.text, said_plainly.model, said_plainly.usage) == ("1 turns", "counting", Usage(1))
    assert (await ask(Scripted(slowly), question("hi"))).reply.calls[0].problem == "broken"


FIELDS = "user, task, parent, report, answer, event, text, once, nth, say, calls, usage, stream, delay, fail, times, retryable, retry_after"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "has no rules"),
        ("[]", "has no rules"),
        ("hello", "has no rules"),
        ("rule: []", 'has to be a list of rules, or "rules:" with such a list; it has: "rule".'),
        ("- hello", f"rule 1 (line 1): A rule has named fields: {FIELDS}."),
        ("# plan\n- say: a\n- sya: b", f'rule 2 (line 3): There is no field "sya". The fields are: {FIELDS}.'),
        ("rules:\n  - say: a\n  - user: x", "rule 2 (line 3): It does nothing. Give it say, calls or fail."),
        ("- {user: a, answer: b, say: c}", "It has user and answer. A rule is about one of them."),
        ("- {user: a, text: b, say: c}", '"text" is for answer and event'),
        ("- {user: [a], say: c}", "\"user\" is ['a']. It has to be a text to be contained, or one of is, contains"),
        ("- {user: {like: a}, say: c}", "one of is, contains, regex with a text"),
        ("- {user: {regex: '('}, say: c}", '"user" is no regular expression: missing )'),
        ("- {answer: 7, say: c}", '"answer" is 7. It has to be a text.'),
        ("- {say: 7}", '"say" is 7. It has to be a text.'),
        ("- {say: a, once: 1}", '"once" is 1. It has to be true or false.'),
        ("- {say: a, nth: 0}", '"nth" is 0. It has to be a number from 1.'),
        ("- {say: a, nth: 2, once: true}", "once is the same as nth: 1"),
        ("- {say: a, delay: soon}", "\"delay\" is 'soon'. It has to be a number of seconds."),
        ("- {say: a, usage: {tokens: 1}}", "amounts for input_tokens, output_tokens, cost"),
        ("- {say: a, times: 2}", '"times" belongs to "fail", which is missing.'),
        ("- {calls: forecast}", "a list, such as: - forecast: {city: Oslo}"),
        ("- {calls: [{a: {}, b: {}}]}", "a list of tools with their arguments"),
        ("- {calls: [{a: 7}]}", "a tool with named arguments, such as: - a: {city: Oslo}"),
        ("- {calls: [{a: {day: 2026-01-01}}]}", "holds a date, which is not JSON. Put it in quotes."),
        ("- {say: '{texd}'}", "{texd} cannot be filled in. Use {text}, {answer}"),
        ("- {calls: [{a: {b: ['{match}']}}]}", "{match} cannot be filled in."),
        ("- say: 'a", "line 1 is not YAML"),
    ],
)
def test_a_wrong_file_says_where_and_what_is_possible(tmp_path: Path, text: str, complaint: str) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(text)
    with pytest.raises(ConfigError) as caught:
        Scripted.from_file(plan)
    assert complaint in str(caught.value)
    assert str(caught.value).startswith(str(plan))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        Scripted.from_file(tmp_path / "none.yaml")


def test_a_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ConfigError, match="cannot be read"):
        Scripted.from_file(tmp_path / "plan.yaml")
