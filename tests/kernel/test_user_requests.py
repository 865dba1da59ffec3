"""What tools ask of the user, and show."""

import pytest

from rapkit.kernel.effects import (
    ClearView,
    HideAuthorization,
    SendChoice,
    ShowAuthorization,
    ShowView,
    TellCancelled,
    Withdraw,
)
from rapkit.kernel.entries import AuthorizationAsked, ChoiceAsked, ChoiceMadeEntry, Failed, Ignored, ViewChanged
from rapkit.kernel.incoming import AnswerUndelivered, CancelCall, ChooseFor, CloseThread
from rapkit.kernel.limits import ThreadLimits
from rapkit.protocol import OAuthRequest, UserChoice, ViewUpdate
from tests.kernel.thread_driver import ThreadDriver, calling, forecast, subscribed
from tests.kernel.tools import SERVER

AUTH_URL = "http://provider.test/authorize?state=1"


def oauth(call_id: str = "c1_t1") -> OAuthRequest:
    return OAuthRequest(group_id="t1", id=call_id, auth_url=AUTH_URL)


def question(number: int = 1, call_id: str = "c1_t1") -> UserChoice:
    return UserChoice(
        group_id="t1",
        id=call_id,
        prompt=f"Question {number}?",
        choices=("yes", "no"),
        default=1,
        response_url=f"{SERVER}/choices/{number}",
    )


def view(content: object, view_type: str = "plan") -> ViewUpdate:
    return ViewUpdate(group_id="t1", view_type=view_type, content=content)


# Authorisation


def test_where_to_authorise_reaches_the_user_and_the_call_stays_pending() -> None:
    """OAU-1"""
    talk = calling(forecast())
    before = talk.conversation()
    assert talk.hears(oauth()) == (AuthorizationAsked("c1_t1"),)
    assert talk.effects == (ShowAuthorization("c1_t1", AUTH_URL),)
    assert list(talk.thread.pending) == ["c1_t1"]
    assert not talk.is_asked()
    assert talk.conversation() == before


def test_where_to_authorise_is_in_no_journal_and_no_state() -> None:
    """OAU-1: not kept longer than needed."""
    talk = calling(forecast())
    talk.hears(oauth())
    assert AUTH_URL not in str((talk.journal, talk.thread))


@pytest.mark.parametrize("end", [CancelCall("c1_t1"), CloseThread()])
def test_where_to_authorise_is_forgotten_when_the_call_ends(end: CancelCall | CloseThread) -> None:
    """OAU-1"""
    talk = calling(forecast())
    talk.hears(oauth())
    talk.hears(end)
    assert HideAuthorization("c1_t1") in talk.effects
    assert talk.thread.authorizing == {}


def test_where_to_authorise_is_not_shown_if_the_call_was_answered_at_once() -> None:
    talk = calling(forecast())
    talk.hears(oauth(), talk.a_result("c1_t1"))
    assert talk.effects == (Withdraw("c1_t1"), HideAuthorization("c1_t1"))


# Choices


def test_the_users_choice_goes_to_the_tool_that_asked() -> None:
    """CHO-1"""
    talk = calling(forecast())
    assert talk.hears(question()) == (ChoiceAsked("c1_t1", "Question 1?", ("yes", "no"), 1),)
    assert not talk.is_asked()

    assert talk.hears(ChooseFor("c1_t1", 0)) == (ChoiceMadeEntry("c1_t1", 0),)
    assert talk.effects == (SendChoice("c1_t1", SERVER, f"{SERVER}/choices/1", 0),)
    assert talk.thread.choices == {}
    assert list(talk.thread.pending) == ["c1_t1"]


def test_the_default_stands_for_a_question_that_is_dismissed() -> None:
    """CHO-1"""
    talk = calling(forecast())
    talk.hears(question())
    assert talk.hears(ChooseFor("c1_t1", None)) == (ChoiceMadeEntry("c1_t1", 1, dismissed=True),)
    assert talk.effects == (SendChoice("c1_t1", SERVER, f"{SERVER}/choices/1", 1),)


@pytest.mark.parametrize("selected", [-1, 2])
def test_a_choice_that_is_none_leaves_the_question_open(selected: int) -> None:
    talk = calling(forecast())
    talk.hears(question())
    (ignored,) = talk.hears(ChooseFor("c1_t1", selected))
    assert ignored == Ignored("choice", f"there are choices 0 to 1, not {selected}", "c1_t1")
    assert talk.effects == ()
    assert len(talk.thread.choices["c1_t1"]) == 1


def test_several_questions_of_one_call_are_answered_one_after_the_other() -> None:
    talk = calling(forecast())
    talk.hears(question(1), question(2), question(1))
    assert [choice.prompt for choice in talk.thread.choices["c1_t1"]] == ["Question 1?", "Question 2?"]
    assert talk.ignored()[-1].reason == "it is being asked already"
    urls = []
    for _ in range(2):
        talk.hears(ChooseFor("c1_t1", 0))
        urls += [effect.response_url for effect in talk.effects if isinstance(effect, SendChoice)]
    assert urls == [f"{SERVER}/choices/1", f"{SERVER}/choices/2"]


def test_a_call_can_ask_only_so_much_at_once() -> None:
    talk = calling(forecast())
    talk.hears(*(question(number) for number in range(20)))
    assert len(talk.thread.choices["c1_t1"]) == 16


@pytest.mark.parametrize(
    ("prompt", "choices", "problem"),
    [
        ("?" * 10_001, ("yes",), "its prompt has 10001 characters; 10000 are possible"),
        ("?", ("yes",) * 101, "it has 101 choices; 100 are possible"),
        ("?", ("yes", "n" * 1001), "one of its choices has 1001 characters; 1000 are possible"),
    ],
)
def test_a_question_that_is_too_long_is_not_kept_and_ends_its_call(
    prompt: str, choices: tuple[str, ...], problem: str
) -> None:
    talk = calling(forecast())
    talk.hears(question(1), question(2).model_copy(update={"prompt": prompt, "choices": choices, "default": 0}))
    assert talk.thread.choices == {}
    assert talk.thread.pending == {}
    assert talk.effects == (Withdraw("c1_t1"), TellCancelled("c1_t1"))
    assert talk.is_asked()
    assert talk.shown()[-1] == (
        f"c1_t1: Error: The tool asked the user a question, but it cannot be answered: {problem}"
    )


def test_the_longest_question_is_asked() -> None:
    talk = calling(forecast())
    longest = {"prompt": "?" * 10_000, "choices": ("n" * 1000,) * 100, "default": 0}
    talk.hears(question().model_copy(update=longest))
    assert len(talk.thread.choices["c1_t1"]) == 1


def test_a_subscription_goes_on_though_its_question_is_too_long() -> None:
    talk = subscribed()
    talk.hears(question().model_copy(update={"prompt": "?" * 10_001}))
    assert talk.ignored()[-1].what == "user_choice"
    assert talk.thread.choices == {}
    assert list(talk.thread.subscriptions) == ["c1_t1"]
    assert talk.effects == ()


def test_a_subscription_may_ask_too_and_its_server_is_known() -> None:
    talk = subscribed()
    talk.hears(question())
    talk.hears(ChooseFor("c1_t1", 0))
    assert talk.effects == (SendChoice("c1_t1", SERVER, f"{SERVER}/choices/1", 0),)


def test_a_question_ends_with_its_call() -> None:
    talk = calling(forecast())
    talk.hears(question())
    talk.result("c1_t1")
    (ignored,) = talk.hears(ChooseFor("c1_t1", 0))
    assert ignored == Ignored("choice", "no question of this call is open", "c1_t1")


@pytest.mark.parametrize("asked", [oauth("c9_t1"), question(call_id="c9_t1")])
def test_a_call_that_is_not_live_asks_nothing(asked: OAuthRequest | UserChoice) -> None:
    talk = calling(forecast())
    (ignored,) = talk.hears(asked)
    assert isinstance(ignored, Ignored)
    assert ignored.call_id == "c9_t1"
    assert talk.effects == ()


def test_the_user_is_told_that_a_choice_did_not_get_there() -> None:
    talk = calling(forecast())
    (failed,) = talk.hears(AnswerUndelivered("c1_t1", "connection refused"))
    assert isinstance(failed, Failed)
    assert failed.text.endswith("connection refused")
    assert list(talk.thread.pending) == ["c1_t1"]


# Views


@pytest.mark.parametrize("content", [{"steps": [1, 2]}, "text", 0, False])
def test_the_latest_content_of_a_view_is_shown_untouched(content: object) -> None:
    """VIE-1"""
    talk = ThreadDriver()
    assert talk.hears(view(content)) == (ViewChanged("plan"),)
    assert talk.effects == (ShowView("plan", content),)
    assert not talk.is_asked()


def test_a_thread_has_only_so_many_kinds_of_views() -> None:
    talk = ThreadDriver(limits=ThreadLimits(views=1))
    talk.hears(view(1), view(2), view(3, "other"))
    assert talk.effects == (ShowView("plan", 2),)
    assert talk.ignored()[-1].what == "view_update"


@pytest.mark.parametrize("empty", [None, "", [], {}])
def test_empty_content_clears_a_view(empty: object) -> None:
    """VIE-2: and makes room for another."""
    talk = ThreadDriver(limits=ThreadLimits(views=1))
    talk.hears(view("something"))

    assert talk.hears(view(empty)) == (ViewChanged("plan", cleared=True),)
    assert talk.effects == (ClearView("plan"),)
    talk.hears(view(1, "other"))
    assert talk.thread.views == ("other",)
    talk.hears(view(empty))
    assert talk.ignored()[-1].what == "view_update"


def test_of_what_is_done_with_a_view_in_one_step_the_last_counts() -> None:
    talk = ThreadDriver()
    talk.hears(view(1), view(None), view(2))
    assert list(talk.effects) == [ShowView("plan", 2)]
    talk.hears(view(3), view(None))
    assert list(talk.effects) == [ClearView("plan")]
