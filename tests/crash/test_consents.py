"""The account itself is tested: every promise about consent and programs that is broken is made up, and must be complained about."""

import json
from dataclasses import replace

from tests.crash.consents import declines
from tests.crash.history import Call, Consent, Death, Delivery, Effect, History, Orphan, Sent
from tests.crash.invariants import account

ACT = Call(1, "act", 0.1, "thread_0", "call_1", None, "user_1")
DENIED = Call(2, "act_again", 0.1, "thread_0", "call_2", None, "user_4")
HOLD = Call(3, "hold", 0.0, "thread_0", "call_3")
WATCH = Call(4, "watch", 0.0, "thread_0", "call_4")
UNKNOWN = "Error: the server was interrupted while act ran, and it is not known whether it took effect. Find out."
LOST = "Error: idp: the provider did not accept the user's authorisation. Call again to ask them anew."


def message(call: Call, kind: str, at: float, **fields: object) -> Delivery:
    body = {"type": kind, "group_id": call.group_id, "id": call.id, "call_id": call.call_id, **fields}
    return Delivery(at, call.path, f"msg_{call.n}_{kind}", json.dumps(body))


def link(call: Call) -> Delivery:
    return message(call, "oauth", 2.0, auth_url="http://127.0.0.1:1/authorize")


def result(call: Call, text: str) -> Delivery:
    return message(call, "tool_result", 4.0, text=text)


def done(call: Call, at: float = 3.5) -> tuple[Effect, ...]:
    whats = ("start", "resumed", "end", "stop")
    return tuple(Effect(at + n / 100, 10, what, call.n) for n, what in enumerate(whats))


def killed(*times: float) -> tuple[Death, ...]:
    return tuple(Death(at, 10) for at in times)


AGREED = Consent(1, 2.5, "user_1", "code", exchanged=(3.0,), page=200)
GOOD = History(
    sent=(Sent(ACT, 1.0, acknowledged=True), Sent(DENIED, 1.0, acknowledged=True)),
    deliveries=(
        link(ACT),
        link(DENIED),
        result(ACT, "act 1 user_1"),
        result(DENIED, "Error: idp: the user declined."),
    ),
    effects=done(ACT),
    consents=(AGREED, Consent(2, 2.5, "user_4", page=200)),
)


def complaint(history: History) -> str:
    (only,) = account(history)
    return only


def told(text: str, call: Call = ACT) -> History:
    others = [each for each in GOOD.deliveries if each.id != f"msg_{call.n}_tool_result"]
    return replace(GOOD, deliveries=(*others, result(call, text)))


def test_good_consents_are_not_complained_about() -> None:
    assert declines("user_4")
    assert not declines("user_1")
    assert account(GOOD) == []


def test_an_answer_for_another_user_is_noticed() -> None:
    assert "was answered 'act 1 user_2'" in complaint(told("act 1 user_2"))


def test_what_is_done_for_a_user_who_declined_is_noticed() -> None:
    done_anyway = replace(told("act_again 2 user_4", DENIED), effects=(*GOOD.effects, *done(DENIED)))
    assert "was done for user_4, who never agreed" in complaint(done_anyway)


def test_a_refusal_that_no_user_gave_is_noticed() -> None:
    assert "had agreed, or was not asked" in complaint(told("Error: idp: the user declined."))
    assert "had agreed, or was not asked" in complaint(replace(GOOD, consents=(AGREED,)))


def test_an_answer_no_handler_gave_is_noticed() -> None:
    assert "never came to the end" in complaint(replace(GOOD, effects=()))


def test_what_is_done_twice_is_noticed() -> None:
    assert "did its work 2 times" in complaint(replace(GOOD, effects=(*done(ACT, 3.3), *done(ACT, 3.6))))


def test_a_lost_consent_needs_a_code_that_was_presented_twice_because_a_server_died() -> None:
    twice = replace(AGREED, exchanged=(3.0, 3.4))
    lost = replace(told(LOST), consents=(twice, GOOD.consents[1]), effects=())

    assert account(replace(lost, deaths=killed(3.1))) == []
    assert "presented twice, though no server had died" in complaint(lost)
    assert "did not accept" in complaint(replace(told(LOST), deaths=killed(3.1), effects=()))


def test_a_code_that_is_presented_again_though_there_is_a_token_for_it_is_noticed() -> None:
    twice = replace(AGREED, exchanged=(3.0, 3.8), used=3.5)
    careless = replace(GOOD, consents=(twice, GOOD.consents[1]), deaths=killed(3.1))
    assert "presented again, though there was a token for it" in complaint(careless)


def test_a_code_is_presented_once_for_every_server_that_died() -> None:
    often = replace(told(LOST), consents=(replace(AGREED, exchanged=(3.0, 3.2, 3.4)), GOOD.consents[1]), effects=())

    assert account(replace(often, deaths=killed(3.1, 3.3))) == []
    assert "presented twice" in complaint(replace(often, deaths=killed(3.1)))


def test_a_user_who_is_never_told_how_it_ended_is_noticed() -> None:
    for page in (None, 400, 500):
        astray = replace(GOOD, consents=(replace(AGREED, page=page), GOOD.consents[1]))
        assert "was never shown how it ended" in complaint(astray)


def test_not_knowing_and_giving_up_need_deaths() -> None:
    given_up = "Error: act was interrupted 3 times and given up. Tell the user."

    assert account(replace(told(UNKNOWN), deaths=killed(3.5))) == []
    assert "not known" in complaint(told(UNKNOWN))
    assert "not known" in complaint(replace(told(UNKNOWN, DENIED), deaths=killed(3.5)))
    assert account(replace(told(given_up), deaths=killed(3.1, 3.2, 3.3))) == []
    assert "given up" in complaint(replace(told(given_up), deaths=killed(3.1, 3.2)))


PROGRAMS = History(
    sent=(
        Sent(HOLD, 1.0, acknowledged=True, cancelled_at=3.0),
        Sent(WATCH, 1.0, acknowledged=True, cancelled_at=3.0),
    ),
    deliveries=(result(HOLD, "Error: Cancelled."), result(WATCH, "Error: Cancelled.")),
    effects=(Effect(1.5, 10, "start", 3), Effect(1.5, 10, "start", 4)),
)


def test_programs_end_with_their_calls() -> None:
    assert account(PROGRAMS) == []
    assert "process 77, which it had started, was still alive" in complaint(replace(PROGRAMS, orphans=(Orphan(3, 77),)))


def test_a_program_that_outlives_its_server_is_noticed() -> None:
    leftover = Effect(2.5, 11, "leftover", 4)
    again = replace(PROGRAMS, effects=(*PROGRAMS.effects, Effect(2.5, 11, "start", 4)), deaths=killed(2.0))

    assert account(again) == []
    assert "while a program of its last run was still alive" in complaint(
        replace(again, effects=(*again.effects, leftover))
    )


def test_a_call_that_is_cancelled_by_nobody_is_noticed() -> None:
    uncalled = replace(PROGRAMS, sent=(replace(PROGRAMS.sent[0], cancelled_at=None), PROGRAMS.sent[1]))
    assert "was answered 'Error: Cancelled.'" in complaint(uncalled)


def test_a_program_that_ends_by_itself_is_noticed() -> None:
    ended = replace(PROGRAMS, deliveries=(result(HOLD, "hold 3"), PROGRAMS.deliveries[1]))
    assert "was answered 'hold 3'" in complaint(ended)
