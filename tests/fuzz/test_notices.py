"""Calls that wait and subscriptions that go on, and whoever wants to end them, rightly or not."""

import json
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from tests.fuzz.garbage import HOSTILE_IDS, header_mutations, header_values
from tests.fuzz.hunt import few_calls_or_many, hunt
from tests.fuzz.signatures import delivery, stripe
from tests.fuzz.target import Sent, Target
from tests.fuzz.wire import visit

KINDS = ("ask", "act", "count", "wait_for_ever", "news", "wait")
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@dataclass
class Crowd:
    """Calls of a few threads: some wait for their user, others go on for ever."""

    target: Target
    topic: str
    calls: dict[Sent, str] = field(default_factory=dict)
    ended: set[Sent] = field(default_factory=set)

    def begin(self, kind: str, thread: str) -> None:
        known: dict[str, dict[str, Any]] = {"news": {"topic": self.topic}, "count": {"last": 30}}
        arguments = known.get(kind, {})
        message = self.target.invocation(operation=kind, arguments=arguments, group_id=f"{self.topic} {thread}")
        self.calls[self.target.send(message)] = kind

    def cancel(self, call: Sent) -> None:
        self.target.cancel(call)
        self.ended.add(call)

    def close(self, thread: str) -> None:
        self.target.close(f"{self.topic} {thread}")
        self.ended |= {call for call in self.calls if call.group_id == f"{self.topic} {thread}"}

    def check(self) -> None:
        """What was ended is answered so; all else is as it was."""
        for call, kind in self.calls.items():
            if kind in ("count", "news", "wait_for_ever"):
                # One that was ended before its confirmation got through ends in silence, or as any call does.
                assert call in self.ended or self.target.result(call).subscription
            elif call in self.ended:
                assert self.target.result(call).text == "Error: Cancelled."
            elif kind == "ask":
                token = self.target.token(self.target.question(call))
                assert self.target.answer(token, call.id, 1).status == 200
                assert self.target.result(call).text == "right"
            elif kind == "act":
                state = self.target.state(self.target.link(call))
                assert visit(self.target.port, f"/oauth/callback?state={state}&error=access_denied").status == 200
                assert self.target.result(call).text == "Error: nowhere: the user declined."
        self._check_topic()

    def _check_topic(self) -> None:
        last = delivery(self.topic, text="over", final=True)
        assert self.target.post("/hooks/stripe", last, stripe(last)).status == 200
        for call, kind in self.calls.items():
            if call not in self.ended and kind in ("news", "count"):
                assert self.target.events(call)[-1] == ("over" if kind == "news" else "30")

    def disperse(self) -> None:
        for thread in {call.group_id for call in self.calls}:
            self.target.close(thread)


threads = st.sampled_from(("a", "b"))
steps = st.lists(
    st.tuples(st.just("begin"), st.sampled_from(KINDS), threads)
    | st.tuples(st.sampled_from(("cancel", "cancel at once", "mix up")), st.integers(0, 9), st.integers(0, 9))
    | st.tuples(st.just("close"), threads, st.none()),
    min_size=3,
    max_size=14,
)


@few_calls_or_many
def test_notices_end_what_they_name_and_nothing_else(target: Target, examples: int) -> None:
    """CAN-2, CLO-5: whatever the order, and however often."""

    def check(script: list[tuple[str, Any, Any]]) -> None:
        crowd = Crowd(target, f"crowd of {target.invocation()['id']}")
        for what, first, second in script:
            calls = list(crowd.calls)
            if what == "begin":
                crowd.begin(first, second)
            elif what == "close":
                crowd.close(first)
            elif calls and what.startswith("cancel"):
                call = calls[first % len(calls)]
                if what == "cancel" and call not in crowd.ended and crowd.calls[call] != "wait":
                    target.first(call)
                crowd.cancel(call)
            elif calls:
                one, other = calls[first % len(calls)], calls[second % len(calls)]
                target.cancel(Sent(one.id, one.group_id))
                if one.group_id != other.group_id:
                    target.cancel(Sent(one.group_id, other.id))
        crowd.check()
        crowd.disperse()

    hunt(examples, steps, check)


def test_notices_for_nobody(target: Target) -> None:
    """They are answered as any other, and hold nobody up who comes later under another name."""
    call, token = target.asks()
    subscription = target.invoke("wait_for_ever")
    assert target.result(subscription).subscription
    for name in HOSTILE_IDS:
        target.close(name)
        target.cancel(Sent(call.group_id, name))
        target.cancel(Sent(name, call.id))
        target.cancel(Sent(name, subscription.id))
    assert target.answer(token, call.id, 0).status == 200
    assert target.result(call).text == "left"
    target.cancel(subscription)
    target.cancel(subscription)
    target.close(subscription.group_id)


@few_calls_or_many
def test_any_traceparent(target: Target, examples: int) -> None:
    """A trace that is none is not gone on with, and the call does not mind."""
    flags = st.sampled_from(("00", "01", "ff", "FF", "0g", "1"))
    likely = flags.map(lambda flag: TRACEPARENT[:-2] + flag) | flags.map(lambda version: version + TRACEPARENT[2:])
    values = header_mutations(TRACEPARENT) | header_values | likely | st.just(TRACEPARENT + "-x" * 2_000)

    def check(given: tuple[str, str, str]) -> None:
        operation, trace, state = given
        arguments = {"text": "x"} if operation == "echo" else {}
        message = target.invocation(operation=operation, arguments=arguments)
        call = target.send(message, {"traceparent": trace, "tracestate": state, "baggage": state})
        target.first(call)
        body = json.dumps({"thread_id": call.group_id}).encode()
        assert target.post("/close_thread", body, {"traceparent": trace}).status == 200

    hunt(examples, st.tuples(st.sampled_from(("echo", "ask", "count")), values, header_values), check)
