"""Calls a person is asked about before they are made (DIS-11)."""

import pytest

from rapkit.kernel.effects import Invoke, MakeChild, TellCancelled, Withdraw
from rapkit.kernel.entries import Answered, ChoiceAsked, ChoiceMadeEntry, Ignored
from rapkit.kernel.incoming import (
    AnswerFor,
    CancelCall,
    ChooseFor,
    CloseThread,
    Incoming,
    SetAside,
    Undelivered,
    UserMessage,
    WakeUp,
)
from rapkit.kernel.limits import Confirmation, Confirmations, ThreadLimits
from rapkit.kernel.projection import NOT_PERMITTED_YET, STILL_RUNNING
from rapkit.kernel.thread import Thread
from rapkit.protocol import OAuthRequest, SubscriptionEvent, ToolResult, UserChoice
from tests.kernel.thread_driver import ThreadDriver, calling, demolish, forecast, storms, want

YES, ALWAYS, NO = "Yes", "Yes, and do not ask again in this conversation", "No"
PROMPT = 'May the agent call demolish with {"city": "Oslo"}?'
DECLINED = "Error: The user was asked whether this call may be made, and declined. Do not try again unless the user asks for it."
NOT_PERMITTED = "Error: The user was asked whether this call may be made, and did not answer in time. It was not made."
REMEMBERED = ThreadLimits(confirmations=Confirmations("remembered"))


def was_sent(talk: ThreadDriver) -> bool:
    return bool(talk.ledger.sent)


def limits(destructive: Confirmation = "always", **tools: Confirmation) -> ThreadLimits:
    return ThreadLimits(confirmations=Confirmations(destructive, tools))


def test_a_call_that_may_destroy_something_is_not_made_before_the_user_has_permitted_it() -> None:
    """DIS-11"""
    talk = calling(demolish())
    assert talk.journal[-1] == ChoiceAsked("c1_t1", PROMPT, (YES, NO), 1)
    assert talk.does() == ()
    assert talk.thread.live_calls == frozenset()
    assert not talk.is_asked()

    assert talk.hears(ChooseFor("c1_t1", 0)) == (ChoiceMadeEntry("c1_t1", 0),)
    assert talk.does() == (Invoke("c1_t1"),)
    assert talk.thread.live_calls == {"c1_t1"}
    assert not talk.is_asked()

    talk.result("c1_t1", "Gone.")
    assert talk.is_asked()
    assert talk.shown()[-1] == "c1_t1: Gone."


@pytest.mark.parametrize(
    ("configured", "tool", "choices"),
    [
        (limits(), "demolish", (YES, NO)),
        (limits(), "forecast", None),
        (limits(), "survey", None),
        (limits("remembered"), "demolish", (YES, ALWAYS, NO)),
        (limits("never"), "demolish", None),
        (limits(demolish="never"), "demolish", None),
        (limits("never", demolish="always"), "demolish", (YES, NO)),
        (limits("never", forecast="remembered"), "forecast", (YES, ALWAYS, NO)),
        (limits("never", forecast="always"), "demolish", None),
    ],
    ids=range(9),
)
def test_which_calls_the_user_is_asked_about(
    configured: ThreadLimits, tool: str, choices: tuple[str, ...] | None
) -> None:
    """DIS-11"""
    talk = calling(want(tool, city="Oslo"), limits=configured)
    assert [entry.choices for entry in talk.journal if isinstance(entry, ChoiceAsked)] == ([choices] if choices else [])
    assert was_sent(talk) == (choices is None)


@pytest.mark.parametrize("configured", [limits(), REMEMBERED], ids=["always", "remembered"])
@pytest.mark.parametrize("dismissed", [False, True])
def test_a_call_the_user_does_not_want_is_never_made_and_nobody_hears_of_it(
    configured: ThreadLimits, dismissed: bool
) -> None:
    """DIS-11"""
    talk = calling(demolish(), limits=configured)
    no = talk.thread.choices["c1_t1"][0].choices.index(NO)
    _, answered = talk.hears(ChooseFor("c1_t1", None if dismissed else no))
    assert answered == Answered("c1_t1", "demolish", DECLINED, by="runtime")
    assert talk.does() == ()
    assert talk.thread.allowed == ()
    assert not was_sent(talk)
    assert talk.is_asked()


def test_a_call_is_not_made_if_nobody_answers_in_time() -> None:
    """DIS-11"""
    talk = calling(demolish(), limits=ThreadLimits(question_timeout=100.0))
    chosen, answered = talk.goes_on_until(1100.0)
    assert chosen == ChoiceMadeEntry("c1_t1", 1, dismissed=True, expired=True)
    assert answered == Answered("c1_t1", "demolish", NOT_PERMITTED, by="runtime")
    assert not was_sent(talk)
    assert talk.is_asked()


@pytest.mark.parametrize("end", [CancelCall("c1_t1"), CloseThread()], ids=["cancelled", "closed"])
def test_a_call_that_is_taken_back_before_it_was_permitted_is_never_made_and_nobody_hears_of_it(end: Incoming) -> None:
    """DIS-11, CAN-1"""
    talk = calling(demolish())
    talk.hears(end)
    assert not [effect for effect in talk.does() if isinstance(effect, Invoke | Withdraw | TellCancelled)]
    assert talk.thread.choices == {}
    talk.hears(ChooseFor("c1_t1", 0))
    assert not was_sent(talk)


def test_a_user_who_writes_is_answered_and_is_still_asked() -> None:
    """DIS-11, RUN-6"""
    talk = calling(demolish())
    talk.user("What for?")
    assert talk.is_asked()
    assert talk.shown()[-2:] == [f"c1_t1: {NOT_PERMITTED_YET}", "What for?"]
    talk.says("It stands in the way.")
    talk.hears(ChooseFor("c1_t1", 0))
    assert talk.does() == (Invoke("c1_t1"),)
    assert f"c1_t1: {STILL_RUNNING}" in talk.shown()
    talk.result("c1_t1", "Gone.")
    assert talk.shown()[-1] == "c1_t1-r7: Gone."


def test_a_call_that_is_not_permitted_after_the_model_went_on_is_answered_late() -> None:
    """DIS-11, RUN-6"""
    talk = calling(demolish())
    talk.hears(WakeUp("news", "09:00", "Read them."))
    talk.says("Read.")
    talk.hears(ChooseFor("c1_t1", 1))
    assert talk.shown()[-1] == f"c1_t1-r7: {DECLINED}"
    assert talk.is_asked()


def test_the_model_takes_its_wish_back_and_nobody_hears_of_it() -> None:
    """DIS-11, CAN-1"""
    talk = calling(demolish())
    talk.user("Do not!")
    talk.says("", want("cancel_tool_call", tool_call_id="c1_t1"))
    assert talk.does() == ()
    assert talk.thread.pending == {}
    assert talk.thread.choices == {}


def test_a_message_of_the_user_takes_the_wish_back_where_it_cancels_calls() -> None:
    """DIS-11"""
    talk = calling(demolish(), limits=ThreadLimits(cancel_on_interrupt=True))
    talk.user("Do not!")
    assert talk.does() == ()
    assert talk.thread.pending == {}
    assert talk.shown()[-2:] == ["c1_t1: Error: Cancelled. The user cancelled this call.", "Do not!"]


# What is remembered


def test_a_user_may_say_that_they_need_not_be_asked_again() -> None:
    """DIS-11"""
    talk = calling(demolish(), limits=REMEMBERED)
    talk.hears(ChooseFor("c1_t1", 1))
    assert talk.does() == (Invoke("c1_t1"),)
    talk.result("c1_t1", "Gone.")
    talk.says("", demolish("Bergen"), forecast())
    assert talk.does() == (Invoke("c2_t1"), Invoke("c3_t1"))


def test_a_plain_yes_is_for_one_call() -> None:
    """DIS-11"""
    talk = calling(demolish(), limits=REMEMBERED)
    talk.hears(ChooseFor("c1_t1", 0))
    talk.result("c1_t1", "Gone.")
    talk.says("", demolish("Bergen"))
    assert talk.does() == ()
    assert list(talk.thread.choices) == ["c2_t1"]


def test_what_is_remembered_is_for_one_tool() -> None:
    """DIS-11"""
    talk = calling(demolish(), limits=limits("remembered", forecast="remembered"))
    talk.hears(ChooseFor("c1_t1", 1))
    talk.result("c1_t1", "Gone.")
    talk.says("", forecast())
    assert list(talk.thread.choices) == ["c2_t1"]


def test_what_was_remembered_counts_for_nothing_where_the_user_is_always_asked() -> None:
    """DIS-11"""
    talk = ThreadDriver(Thread("t1", allowed=("demolish",)))
    talk.user("Hello")
    talk.says("", demolish())
    assert list(talk.thread.choices) == ["c1_t1"]


def test_children_with_a_task_inherit_what_is_remembered_and_those_made_for_an_event_do_not() -> None:
    """DIS-11: nobody looks on there, and strangers' texts decide what the model wants."""
    talk = calling(demolish(), storms(), limits=REMEMBERED)
    talk.hears(ChooseFor("c1_t1", 1))
    talk.result("c1_t1", "Gone.")
    talk.result("c2_t1", "Subscribed.", subscription=True)
    talk.says("", want("spawn_thread", task="The rest."))
    spawned = talk.spawned()
    spawned.says("", demolish("Bergen"))
    assert Invoke("c5_t1-000001") in spawned.effects
    talk.event("c2_t1", associative=False)
    (made,) = [effect for effect in talk.does() if isinstance(effect, MakeChild)]
    child = talk.child(made)
    child.says("", demolish("Bergen"))
    assert not was_sent(child)
    assert list(child.thread.choices) == ["c4_t1-000002"]


@pytest.mark.parametrize("selected", [0, 1], ids=["yes", "always"])
def test_a_permission_that_comes_too_late_makes_no_call(selected: int) -> None:
    """DIS-11, INV-3"""
    talk = calling(demolish(), limits=REMEMBERED)
    talk.hears(ChooseFor("c1_t1", selected, problem="It is not offered any more."))
    expected = "Error: The user permitted this call, but it cannot be made any more: It is not offered any more."
    assert talk.answers()[-1].text == expected
    assert not was_sent(talk)
    assert talk.is_asked()
    assert talk.thread.allowed == ()


def test_who_declines_need_not_know_that_it_could_not_be_made() -> None:
    """DIS-11"""
    talk = calling(demolish())
    talk.hears(ChooseFor("c1_t1", 1, problem="It is not offered any more."))
    assert talk.answers()[-1].text == DECLINED


# What else may come for a call that was not made

STRANGE: list[Incoming] = [
    ToolResult(group_id="t1", id="c1_t1", text="Gone."),
    SubscriptionEvent(group_id="t1", tool_call_id="c1_t1", text="!"),
    OAuthRequest(group_id="t1", id="c1_t1", auth_url="http://a.test"),
    UserChoice(group_id="t1", id="c1_t1", prompt="?", choices=("a",), default=0, response_url="http://a.test"),
    Undelivered("c1_t1", "nobody is there"),
    SetAside("tool_result", "poison", "c1_t1"),
    SetAside("user_choice", "poison", "c1_t1"),
    AnswerFor("c1_t1", "Yes"),
    ChooseFor("c1_t1", 2),
    ChooseFor("c1_t1", -1),
]


@pytest.mark.parametrize("message", STRANGE, ids=range(len(STRANGE)))
def test_only_a_choice_answers_the_question(message: Incoming) -> None:
    """DIS-11: neither a server that guesses ids nor a text is a permission."""
    talk = calling(demolish())
    (ignored,) = talk.hears(message)
    assert isinstance(ignored, Ignored)
    assert talk.does() == ()
    assert len(talk.thread.choices["c1_t1"]) == 1
    assert talk.thread.pending["c1_t1"].awaits == "permission"


def test_each_of_several_calls_is_asked_about_and_the_model_waits_for_all() -> None:
    """DIS-11"""
    talk = calling(demolish(), forecast(), demolish("Bergen"))
    assert talk.does() == (Invoke("c2_t1"),)
    talk.result("c2_t1")
    talk.hears(ChooseFor("c3_t1", 0), ChooseFor("c1_t1", 1))
    assert not talk.is_asked()
    talk.result("c3_t1", "Gone.")
    assert talk.is_asked()
    assert talk.shown()[-3:] == [f"c1_t1: {DECLINED}", "c2_t1: sunny", "c3_t1: Gone."]


def test_a_wrong_call_is_refused_and_nobody_is_asked() -> None:
    """DIS-11, INV-3"""
    talk = calling(want("demolish", town="Oslo"))
    assert talk.thread.choices == {}
    assert talk.is_asked()


def test_long_arguments_are_shown_in_part() -> None:
    """DIS-11"""
    talk = calling(demolish("Oslo" * 2000))
    prompt = talk.thread.choices["c1_t1"][0].prompt
    assert prompt.endswith("… (and 4012 characters more)?")
    assert len(prompt) < 4100


def test_nothing_in_the_arguments_hides_what_else_stands_there() -> None:
    """DIS-11"""
    talk = calling(demolish("Oslo\u202eneg\u200breB\x1b[2J \u00c5lesund"))
    prompt = talk.thread.choices["c1_t1"][0].prompt
    assert prompt.isprintable()
    for each in (r"\u202e", r"\u200b", r"\u001b[2J", " \u00c5lesund"):
        assert each in prompt


def test_a_call_that_is_permitted_and_answered_in_one_batch_counts() -> None:
    """DIS-11"""
    talk = calling(demolish())
    talk.hears(ChooseFor("c1_t1", 0), talk.a_result("c1_t1", "Gone."), UserMessage("Well?"))
    assert talk.shown()[-2:] == ["c1_t1: Gone.", "Well?"]
    assert not [effect for effect in talk.does() if isinstance(effect, Invoke)]
