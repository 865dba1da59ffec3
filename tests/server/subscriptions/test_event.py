"""Events: what an author says, what leaves and when, and what functions can be subscriptions."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from rapkit import Context, Diff, Event, Image
from rapkit.errors import ConfigError, ToolError
from rapkit.protocol import parse_callback, parse_invocation
from rapkit.server.invocation import StoredCall
from rapkit.server.subscriptions.event import Occurrence, to_occurrences
from rapkit.server.subscriptions.event_batcher import EventBatcher, EventMessage
from rapkit.server.subscriptions.subscription_state import SubscriptionState
from rapkit.server.tools.output import BadResult
from rapkit.server.tools.tool import SubscriptionTraits, Tool, Traits, make_subscription, make_tool
from rapkit.server.tools.topic_pattern import read_pattern

T0 = 1_000_000.0
LARGEST = 100_000
BODY = json.dumps(
    {"operation": "watch", "arguments": {}, "id": "c1", "callback_url": "https://a.example/cb", "group_id": "t1"}
).encode()


class Storm(BaseModel):
    name: str
    force: int


# What an author says


def texts(value: object) -> list[str]:
    return [each.text for each in to_occurrences(value, associative=False)]


def test_a_text_a_model_and_data_are_events() -> None:
    """SUB-3: structured data as JSON"""
    assert texts("It rains.") == ["It rains."]
    assert texts(Storm(name="Ada", force=9)) == ['{"name":"Ada","force":9}']
    assert texts({"rain": None, "wind": [1, 2]}) == ['{"rain":null,"wind":[1,2]}']
    assert texts(7) == ["7"]
    assert texts(Event(["a", "b"])) == ['["a","b"]']
    assert texts(Diff("a.txt", "+ b")) == ["+ b"]


def test_none_is_no_event_and_a_list_is_several() -> None:
    assert texts(None) == []
    assert texts([]) == []
    assert texts(["a", None, Event("b"), ["c", {"d": 1}]]) == ["a", "b", "c", '{"d":1}']


def test_an_event_can_say_less_than_everything() -> None:
    assert texts(Event(None)) == [""]
    assert to_occurrences(Event("x"), associative=True) == [Occurrence("x", None, associative=True, final=False)]
    assert to_occurrences(Event("x", "7", associative=False, final=True), associative=True) == [
        Occurrence("x", "7", associative=False, final=True)
    ]


@pytest.mark.parametrize(
    "value", [b"bytes", Image(b"\x89PNG", "image/png"), object(), Event(b"x"), ["fine", {1: object()}]]
)
def test_what_cannot_be_sent_is_refused_with_a_sentence(value: object) -> None:
    with pytest.raises(BadResult, match="mistake in the tool"):
        to_occurrences(value, associative=False)


def test_half_characters_do_not_hold_an_event_up() -> None:
    assert texts("caf\udce9") == ["caf?"]


@pytest.mark.parametrize("cursor", [7, 7.0, b"7", ["7"]])
def test_a_cursor_is_a_text_because_a_text_comes_back(cursor: Any) -> None:
    with pytest.raises(TypeError, match=r"cursor is a str.*write str"):
        Event("x", cursor=cursor)


# What is kept


def sub_state(**fields: Any) -> SubscriptionState:
    return SubscriptionState(
        StoredCall("tools", "default", parse_invocation(BODY), BODY, "https://me.example"), **fields
    )


def test_how_a_subscription_stands_survives_being_written() -> None:
    """SUB-1"""
    for each in (
        sub_state(),
        sub_state(topic="gh/ä", cursor="\n\0", mark=1.5, batch=("a\nb", ""), batch_associative=True),
        sub_state(failures=3, losses=2, excused=7, missed_at=9.25, ended=True),
    ):
        again = SubscriptionState.from_state("tools", each.to_state())

        assert again == each
        assert again.message.callback_url == "https://a.example/cb"
        assert (again.message.group_id, again.message.id) == ("t1", "c1")


def test_what_is_no_subscription_is_not_taken_for_one() -> None:
    bad = sub_state().to_state().replace(b'"operation"', b'"operatiom"')
    for state in (b"", b"{}", b"{}\n", b'{"unknown":1}\n' + sub_state().call.to_state(), bad):
        with pytest.raises((ValueError, TypeError)):
            SubscriptionState.from_state("tools", state)


# What leaves


@dataclass
class Said:
    """A message that left."""

    text: str
    at: float
    associative: bool = False
    final: bool = False


def said(departure: EventMessage) -> Said:
    message = parse_callback(departure.body)
    assert message.type == "subscription_event"
    assert (message.group_id, message.tool_call_id) == ("t1", "c1")
    assert message.final == departure.final
    at = T0 if departure.not_before is None else departure.not_before
    return Said(message.text, round(at - T0, 6), message.associative, message.final)


def event(text: str, **fields: Any) -> Occurrence:
    return replace(Occurrence(text, None, associative=False, final=False), **fields)


def send(
    outflow: EventBatcher, events: list[Occurrence], start: SubscriptionState | None = None
) -> tuple[SubscriptionState, list[Said]]:
    after, left = outflow.send(start or sub_state(), events, T0)
    return after, [said(each) for each in left]


def test_each_event_is_a_message_and_the_last_cursor_is_kept() -> None:
    """SUB-3"""
    outflow = EventBatcher(SubscriptionTraits(), LARGEST)
    after, left = send(outflow, [event("a", cursor="1"), event("b", cursor="2", associative=True), event("c")])

    assert left == [Said("a", 0), Said("b", 0, associative=True), Said("c", 0)]
    assert after.cursor == "2"
    assert not after.ended


def test_nothing_leaves_after_a_final_event() -> None:
    """SUB-4"""
    outflow = EventBatcher(SubscriptionTraits(), LARGEST)
    after, left = send(outflow, [event("a"), event("b", final=True), event("c"), event("d", final=True)])

    assert left == [Said("a", 0), Said("b", 0, final=True)]
    assert after.ended


def test_events_past_the_rate_are_delayed_and_the_pace_is_part_of_what_is_kept() -> None:
    """SUB-8"""
    outflow = EventBatcher(SubscriptionTraits(rate=1), LARGEST)
    after, left = send(outflow, [event("a"), event("b"), event("c")])
    again = SubscriptionState.from_state("tools", after.to_state())
    _, more = send(outflow, [event("d")], again)

    assert [each.at for each in [*left, *more]] == [0, 0, 1, 2]


def test_a_batch_leaves_as_one_event_when_the_pace_allows() -> None:
    """SUB-8"""
    outflow = EventBatcher(SubscriptionTraits(rate=1, batch=True), LARGEST)
    after, left = send(outflow, [event("a"), event("b"), event("c", cursor="3"), event("d")])
    assert left == [Said("a", 0), Said("b", 0)]
    assert (after.batch, after.cursor) == (("c", "d"), "3")
    assert outflow.flush_at(after, T0) == T0 + 1

    flushed, late = outflow.flush(after, T0 + 1)
    assert [(said(each).text, each.not_before) for each in late] == [("c\nd", None)]
    assert outflow.flush_at(flushed, T0 + 1) is None


def test_a_batch_never_mixes_threads() -> None:
    outflow = EventBatcher(SubscriptionTraits(rate=0.5, batch=True), LARGEST)
    _, left = send(
        outflow,
        [event("a"), event("b"), event("c"), event("d", associative=True), event("e", associative=True), event("f")],
    )

    assert left == [Said("a", 0), Said("b\nc", 2), Said("d\ne", 4, associative=True)]


def test_a_final_event_takes_the_batch_along_before_itself() -> None:
    """SUB-4"""
    outflow = EventBatcher(SubscriptionTraits(rate=0.5, batch=True), LARGEST)
    after, left = send(outflow, [event("a"), event("b"), event("c"), event("end", final=True)])

    assert left == [Said("a", 0), Said("b\nc", 2), Said("end", 4, final=True)]
    assert after.batch == ()


def test_a_batch_does_not_grow_without_end() -> None:
    outflow = EventBatcher(SubscriptionTraits(rate=0.5, batch=True), LARGEST)
    after, left = send(outflow, [event("x" * 1000) for _ in range(50)])

    assert max(len(each.text) for each in left) <= LARGEST / 8
    assert "".join(each.text for each in left).count("x") + "".join(after.batch).count("x") == 50_000

    after, left = send(outflow, [event("") for _ in range(3000)])
    assert [len(each.text) for each in left[1:]] == [999, 999]


def test_an_event_too_large_to_be_sent_is_told_of_instead() -> None:
    outflow = EventBatcher(SubscriptionTraits(associative=True), 500)
    after, left = send(outflow, [event("x" * 1000, cursor="1", associative=True), event("y", final=True)])

    assert left[0].text == "Error: an event has 1,094 bytes, and 500 can be sent."
    assert left[0].associative
    assert after.cursor == "1"
    assert left[1] == Said("y", 0, final=True)


@given(
    events=st.lists(st.tuples(st.sampled_from("ab"), st.booleans(), st.floats(0, 3)), max_size=40),
    rate=st.sampled_from([None, 0.5, 1.0, 10.0]),
    batch=st.booleans(),
)
def test_nothing_is_lost_or_turned_round(
    events: list[tuple[str, bool, float]], rate: float | None, batch: bool
) -> None:
    """SUB-8: whatever comes when, with restarts in between."""
    outflow = EventBatcher(SubscriptionTraits(rate=rate, batch=batch), LARGEST)
    now, stands, left = T0, sub_state(), []
    for number, (text, associative, gap) in enumerate(events):
        now += gap
        due = outflow.flush_at(stands, now)
        if due is not None and due <= now:
            stands, flushed = outflow.flush(stands, now)
            left += flushed
        occurrence = Occurrence(f"{number}{text}", str(number), associative, final=False)
        stands, more = outflow.send(stands, [occurrence], now)
        left += more
        assert stands.cursor == str(number)
        stands = SubscriptionState.from_state("tools", stands.to_state())
    stands, more = outflow.send(stands, [Occurrence("end", None, associative=False, final=True)], now)
    left += more

    told = [(line, each.associative) for each in map(said, left) for line in each.text.split("\n")]
    expected = [(f"{number}{text}", associative) for number, (text, associative, _) in enumerate(events)]
    assert told == [*expected, ("end", False)]
    delays = [each.not_before for each in left if each.not_before is not None]
    assert delays == sorted(delays)


# Topics


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("pattern", "arguments", "topic"),
    [
        ("news", {}, "news"),
        ("gh/{owner}/{repo}", {"owner": "acme", "repo": "api", "other": "/"}, "gh/acme/api"),
        ("{n}/{n}", {"n": 7}, "7/7"),
        ("c-{c}.x/{{literal}}", {"c": Colour.RED}, "c-red.x/{literal}"),
    ],
)
def test_arguments_make_a_topic_of_a_pattern(pattern: str, arguments: dict[str, object], topic: str) -> None:
    read = read_pattern(pattern)

    assert read.fill(arguments) == topic
    assert read.fits(topic)


@pytest.mark.parametrize("value", ["", "a/b", "/", None, True, 1.5, ["a"]])
def test_values_that_would_make_another_topic_are_refused(value: object) -> None:
    with pytest.raises(ToolError, match="owner is part of a topic"):
        read_pattern("gh/{owner}/{repo}").fill({"owner": value, "repo": "api"})


@given(st.tuples(st.text(), st.text()), st.tuples(st.text(), st.text()))
def test_different_arguments_never_make_the_same_topic(one: tuple[str, str], other: tuple[str, str]) -> None:
    pattern = read_pattern("a-{x}/b{y}c")
    try:
        topics = [pattern.fill({"x": x, "y": y}) for x, y in (one, other)]
    except ToolError:
        return

    assert (topics[0] == topics[1]) == (one == other)
    assert all(map(pattern.fits, topics))


@pytest.mark.parametrize("topic", ["", "gh", "gh/acme", "gh/acme/", "gh//api", "gh/a/b/c", "GH/a/b", " gh/a/b"])
def test_topics_that_no_arguments_make_do_not_fit(topic: str) -> None:
    assert not read_pattern("gh/{owner}/{repo}").fits(topic)


@pytest.mark.parametrize(
    "pattern", ["", "a/{b", "a/b}", "{}", "{0}", "{a.b}", "{a[0]}", "{a!r}", "{a:>3}", "{a b}", "{a}{b}", "{a}-{b}/c"]
)
def test_a_pattern_that_is_none_is_refused(pattern: str) -> None:
    with pytest.raises(ConfigError, match="topic"):
        read_pattern(pattern)


# Functions


def subscription(function: Callable[..., Any], **traits: Any) -> Tool:
    return make_subscription(function, None, Traits(), SubscriptionTraits(**traits))


async def storm_alerts(city: str, ctx: Context) -> AsyncIterator[Event]:
    """Tell me when a storm approaches."""
    yield Event(city)


def ticks() -> Iterator[str]:
    """Tick."""
    yield "tick"


async def pulls(owner: str, repo: str, payload: dict[str, Any]) -> str | None:
    """Tell me about pull requests."""
    return None


async def once(city: str) -> str:
    """Say it once."""
    return city


def test_a_generator_is_a_subscription() -> None:
    definition = subscription(storm_alerts).definition()

    assert definition.name == "storm_alerts"
    assert list(definition.inputSchema["properties"]) == ["city"]
    assert definition.annotations is not None
    assert definition.annotations.longRunning
    assert subscription(ticks).signature.is_generator


def test_a_topic_s_function_is_a_subscription_whose_payload_nobody_gives() -> None:
    tool = subscription(pulls, topic="gh/{owner}/{repo}")

    assert list(tool.definition().inputSchema["properties"]) == ["owner", "repo"]


def test_a_subscription_that_was_lost_before_its_confirmation_may_be_tried_again() -> None:
    assert subscription(storm_alerts).repeatable
    assert not make_tool(once, None, Traits()).repeatable


@pytest.mark.parametrize(
    ("function", "traits", "told"),
    [
        (once, {}, "is not a generator.*Let it yield them, or give it the topic"),
        (storm_alerts, {"topic": "storms/{city}"}, "has a topic and is a generator"),
        (once, {"topic": "storms/{city}"}, "has no parameter 'payload'.*Add 'payload: dict'"),
        (pulls, {"topic": "gh/{org}/{repo}"}, "names org, which the model cannot give. Its parameters: owner, repo"),
        (pulls, {"topic": "gh/{payload}"}, "names payload, which the model cannot give"),
        (pulls, {"topic": "gh/{owner}{repo}"}, "one placeholder at most"),
        (ticks, {"rate": 0}, "rate is a number of events a second above 0, not 0"),
        (ticks, {"rate": float("nan")}, "rate is a number"),
        (ticks, {"rate": float("inf")}, "rate is a number"),
    ],
)
def test_what_cannot_be_a_subscription_is_refused_in_plain_words(
    function: Callable[..., Any], traits: dict[str, Any], told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        subscription(function, **traits)


def test_a_tool_that_yields_is_told_of_subscriptions() -> None:
    with pytest.raises(ConfigError, match=r"is a generator.*@tools\.subscription"):
        make_tool(storm_alerts, None, Traits())
