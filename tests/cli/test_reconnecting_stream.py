"""Following a thread through everything that can happen to an agent."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from rapkit.cli import reconnecting_stream
from rapkit.cli.agent_api import AgentApi, AgentRefused, AgentUnreachable, EventStreamReader, StreamEvent
from rapkit.cli.agent_selection import AgentSelection, reach_agent
from rapkit.cli.ask.answer_wait import AnswerOutcome, AnswerWait, WaitStart
from rapkit.cli.command_hints import CommandHints
from rapkit.cli.reconnecting_stream import ConnectionLost, Reconnected, ReconnectingStream
from tests.cli.fake_agent import Answer, FakeAgent, document, entry, events, problem, raw


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconnecting_stream, "_FIRST_PAUSE", 0.01)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentApi]:
    folder: Path = tmp_path_factory.mktemp("agent")
    (folder / "plan.yaml").write_text("- say: Hello.\n")
    (folder / "rapkit.toml").write_text('[agent]\nmodel = "scripted:plan.yaml"\nport = 0\n')
    with reach_agent(AgentSelection(str(folder / "rapkit.toml")), working=True) as agent:
        yield agent.api


OVER: Answer = raw(b"", 204)


def seqs(heard: list[StreamEvent | ConnectionLost | Reconnected]) -> list[object]:
    """The numbers of entries, and the kind of everything else."""
    return [
        each.data["seq"] if isinstance(each, StreamEvent) and each.kind == "entry" else type(each) for each in heard
    ]


def test_a_real_thread_is_followed_until_it_is_closed(agent: AgentApi) -> None:
    thread_id = agent.post("threads", {"text": "Hi"})["thread_id"]
    follow = ReconnectingStream(agent, thread_id)
    kinds = []
    for event in follow:
        assert isinstance(event, StreamEvent)
        if event.kind == "entry":
            kinds.append(event.data["kind"])
        if kinds[-1:] == ["assistant"] and event.kind == "entry":
            agent.post(f"threads/{thread_id}/close")

    assert kinds == ["user", "assistant", "closed"]
    assert follow.after == "3"


def test_one_can_begin_in_the_middle(agent: AgentApi) -> None:
    thread_id = agent.post("threads", {"text": "Hi"})["thread_id"]
    agent.post(f"threads/{thread_id}/close")

    assert entries(ReconnectingStream(agent, thread_id, "1")) == entries(ReconnectingStream(agent, thread_id))[1:]


def entries(follow: ReconnectingStream) -> list[StreamEvent]:
    return [each for each in follow if isinstance(each, StreamEvent) and each.kind == "entry"]


def test_an_agent_that_dies_is_taken_up_where_it_was_left(impostor: FakeAgent) -> None:
    impostor.answers = [
        events(entry(1), b'event: delta\ndata: {"text": "x"}\n\n', cut=True),
        problem(503, "Not now."),
        problem(503, "Not now."),
        events(entry(2), cut=True),
        events(entry(3)),
        OVER,
    ]

    heard = list(ReconnectingStream(AgentApi(impostor.url), "t"))

    # It is lost once, however often it is tried; and again when it is lost again.
    assert seqs(heard) == [1, StreamEvent, ConnectionLost, Reconnected, 2, ConnectionLost, Reconnected, 3]
    last_ids = [request.headers.get("last-event-id") for request in impostor.requests]
    assert last_ids == [None, "1", "1", "1", "2", "3"]


def test_streams_that_end_are_no_news(impostor: FakeAgent) -> None:
    """Every stream ends after ten minutes, and an agent that stops ends them all."""
    impostor.answers = [events(entry(1)), events(), events(entry(2)), OVER]

    assert seqs(list(ReconnectingStream(AgentApi(impostor.url), "t"))) == [1, 2]


def test_an_agent_that_does_not_let_us_is_not_asked_again(impostor: FakeAgent) -> None:
    for answer in (problem(404, "There is no thread."), problem(401, "No token."), document({})):
        impostor.answers, impostor.requests = [answer], []
        with pytest.raises(AgentRefused):
            list(ReconnectingStream(AgentApi(impostor.url), "t"))
        assert len(impostor.requests) == 1


def test_there_may_be_an_end_to_patience(agent: AgentApi, impostor: FakeAgent) -> None:
    thread_id = agent.post("threads")["thread_id"]
    with pytest.raises(TimeoutError):
        list(ReconnectingStream(agent, thread_id, ends_at=time.monotonic() + 0.1))
    impostor.answers = [problem(503, "Not now.")]
    with pytest.raises(TimeoutError):
        list(ReconnectingStream(AgentApi(impostor.url), "t", ends_at=time.monotonic() + 0.1))
    with pytest.raises(TimeoutError):
        list(ReconnectingStream(agent, thread_id, ends_at=time.monotonic() - 1))


def test_it_can_be_closed_from_another_thread(agent: AgentApi, impostor: FakeAgent) -> None:
    impostor.answers = [problem(503, "Not now.")]
    for follow in (
        ReconnectingStream(agent, agent.post("threads")["thread_id"]),
        ReconnectingStream(AgentApi(impostor.url), "t"),
    ):
        heard = threading.Event()
        closing = threading.Thread(target=close_after, args=(heard, follow))
        closing.start()
        for _event in follow:
            heard.set()
        closing.join()


def close_after(heard: threading.Event, follow: ReconnectingStream) -> None:
    heard.wait()
    follow.close()


# Waiting for an answer in what is followed


def awaited(
    impostor: FakeAgent, *answers: Answer, message_id: str | None = "m1", waits_for_user: bool = False
) -> AnswerOutcome:
    impostor.answers = list(answers)
    awaiting = AnswerWait(
        AgentApi(impostor.url),
        "t",
        WaitStart("0", message_id),
        said=CommandHints(),
        ends_at=None,
        waits_for_user=waits_for_user,
        tell=lambda _: None,
        show=lambda _: None,
    )
    return awaiting.wait()


USAGE = {"requests": 1, "input_tokens": 0, "output_tokens": 0, "cost": 0.0}


def said(seq: int, text: str, *calls: str) -> bytes:
    made = [{"id": name, "name": name, "arguments": {}} for name in calls]
    return entry(seq, kind="assistant", text=text, calls=made, usage=USAGE)


def status(value: str, seq: int) -> bytes:
    return f'event: status\nid: {seq}\ndata: {{"status": "{value}", "reason": null}}\n\n'.encode()


def test_only_the_answer_to_this_message_counts(impostor: FakeAgent) -> None:
    stream = events(
        entry(1, kind="user", text="another", id="m0"),
        said(2, "to another"),
        entry(3, kind="parked", reason="before"),
        entry(4, kind="user", text="ours", id="m1"),
        said(5, "Let me look.", "forecast"),
        said(6, "to ours"),
        said(7, "and more"),
    )

    assert awaited(impostor, stream) == AnswerOutcome("answered", "to ours", 6)


def test_a_message_that_is_set_aside_is_not_waited_for(impostor: FakeAgent) -> None:
    stream = events(entry(1, kind="ignored", what="user", reason="It cannot be read."), status("idle", 1))
    thread = {"status": "idle", "length": 1}

    outcome = awaited(impostor, stream, document(thread))

    assert outcome == AnswerOutcome("stopped", problem="The message was not taken: It cannot be read.")


def test_another_message_that_is_set_aside_is_not_ours(impostor: FakeAgent) -> None:
    stream = events(
        entry(1, kind="ignored", what="user", reason="It cannot be read."),
        entry(2, kind="user", text="ours", id="m1"),
        said(3, "to ours"),
    )

    assert awaited(impostor, stream, document({"status": "running", "length": 1})).text == "to ours"


def test_an_agent_that_cannot_be_looked_at_is_asked_again(impostor: FakeAgent) -> None:
    thread = {
        "status": "waiting",
        "length": 2,
        "pending_calls": [{"call_id": "c1", "still_running_shown": False}],
        "choices": [{"call_id": "c1"}],
        "oauth": [],
    }
    stream = events(entry(1, kind="user", text="ours", id="m1"), status("waiting", 1))

    outcome = awaited(impostor, stream, problem(503, "Not now."), events(status("waiting", 1)), document(thread))

    assert outcome == AnswerOutcome("asks")


def test_a_question_the_model_does_not_wait_for_is_no_hindrance(impostor: FakeAgent) -> None:
    thread = {
        "status": "waiting",
        "length": 2,
        "pending_calls": [{"call_id": "c1", "still_running_shown": True}],
        "choices": [{"call_id": "c1"}],
        "oauth": [],
    }
    stream = events(entry(1, kind="user", text="ours", id="m1"), status("waiting", 1))

    outcome = awaited(impostor, stream, document(thread), events(said(2, "Well.")))

    assert outcome.text == "Well."


@pytest.mark.parametrize("answered", [True, False], ids=["it was", "it was not"])
def test_a_question_that_was_perhaps_answered_is_looked_at_again(impostor: FakeAgent, answered: bool) -> None:
    """The answer is in the thread's mail, or something else is: that is known when it was read."""
    open_ = {
        "status": "running",
        "length": 2,
        "pending_calls": [{"call_id": "c1", "still_running_shown": False}],
        "choices": [{"call_id": "c1"}],
        "oauth": [],
    }
    read = {**open_, "status": "waiting"} | ({"choices": []} if answered else {})
    asked = entry(1, kind="user", text="ours", id="m1"), status("running", 1)
    stream = events(*asked, entry(2, kind="chosen" if answered else "view"), said(3, "Well."))

    outcome = awaited(impostor, stream, document(open_), document(read))

    assert outcome == (AnswerOutcome("answered", "Well.", 3) if answered else AnswerOutcome("asks"))


def test_an_agent_that_is_away_for_days_is_still_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = 1100  # by then a pause that doubles each time is more than a float can hold

    class Nothing(EventStreamReader):
        def __iter__(self) -> Iterator[StreamEvent]:
            nonlocal tries
            tries -= 1
            if not tries:
                follow.close()
            raise AgentUnreachable("It is away.")

    monkeypatch.setattr(AgentApi, "stream", lambda api, thread_id, after: Nothing(api, thread_id, after))
    monkeypatch.setattr(reconnecting_stream, "_LONGEST_PAUSE", 0.0)
    follow = ReconnectingStream(AgentApi("http://127.0.0.1:9"), "t1")

    assert list(follow) == [ConnectionLost("It is away.")]
    assert tries == 0
