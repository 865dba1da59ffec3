"""The account itself is tested: every promise about questions that is broken is made up, and must be complained about."""

import json
from dataclasses import replace

from tests.crash.dialogues import CHOICES, prompt
from tests.crash.history import Answer, Call, Death, Delivery, Effect, History, Sent
from tests.crash.invariants import account

ASK = Call(1, "ask", 0.1, "thread_0", "call_1")
TWICE = Call(2, "ask_twice", 0.1, "thread_0", "call_2", "model_2")
AGAIN = Call(3, "ask_again", 0.1, "thread_0", "call_3")
UNKNOWN = "Error: the server was interrupted while ask ran, and it is not known whether it took effect. Find out."
GIVEN_UP = "Error: ask was interrupted 3 times and given up. Tell the user."


def message(call: Call, kind: str, at: float, id: str, **fields: object) -> Delivery:
    body = {"type": kind, "group_id": call.group_id, "id": call.id, "call_id": call.call_id, **fields}
    return Delivery(at, call.path, f"msg_{call.n}_{id}", json.dumps(body))


def question(call: Call, number: int, at: float, id: str | None = None) -> Delivery:
    id = id or f"q{number}"
    url = f"http://127.0.0.1:1/answer/{call.n}-{id}"
    return message(
        call, "user_choice", at, id, prompt=prompt(call.n, number), choices=CHOICES, default=0, response_url=url
    )


def result(call: Call, text: str, at: float) -> Delivery:
    return message(call, "tool_result", at, "result", text=text)


def done(call: Call, at: float) -> tuple[Effect, ...]:
    whats = ("start", "resumed", "end", "stop")
    return tuple(Effect(at + n / 100, 10, what, call.n) for n, what in enumerate(whats))


def killed(*times: float) -> tuple[Death, ...]:
    return tuple(Death(at, 10) for at in times)


GOOD = History(
    sent=(Sent(ASK, 1.0, acknowledged=True), Sent(TWICE, 1.0, acknowledged=True)),
    deliveries=(
        question(ASK, 1, 2.0),
        question(TWICE, 1, 2.0),
        result(ASK, "ask 1 no", 4.0),
        question(TWICE, 2, 4.0),
        result(TWICE, "ask_twice 2 yes maybe", 6.0),
    ),
    answers=(Answer(1, 1, 1, 3.0, (200,)), Answer(2, 1, 0, 3.0, (200,)), Answer(2, 2, 2, 5.0, (200,))),
    effects=(*done(ASK, 3.5), *done(TWICE, 5.5)),
)
ONE = replace(
    GOOD,
    sent=GOOD.sent[:1],
    deliveries=(GOOD.deliveries[0], GOOD.deliveries[2]),
    answers=GOOD.answers[:1],
    effects=done(ASK, 3.5),
)


def complaint(history: History) -> str:
    (only,) = account(history)
    return only


def told(text: str, history: History = ONE) -> History:
    return replace(history, deliveries=(history.deliveries[0], result(ASK, text, 4.0)))


def answered(*statuses: int | None, selected: int = 1, first: bool = True) -> Answer:
    return Answer(1, 1, selected, 3.0, statuses, first)


def test_good_dialogues_are_not_complained_about() -> None:
    assert account(GOOD) == []
    assert account(ONE) == []


def test_a_question_that_is_asked_anew_is_noticed() -> None:
    anew = (ONE.deliveries[0], question(ASK, 1, 2.5, "q1 again"), ONE.deliveries[1])
    assert "asked what it should not, not in order, or anew" in complaint(
        replace(ONE, deliveries=anew, deaths=killed(2.2))
    )


def test_the_same_question_again_after_a_death_is_a_retransmission() -> None:
    again = (ONE.deliveries[0], question(ASK, 1, 2.5), ONE.deliveries[1])
    assert account(replace(ONE, deliveries=again, deaths=killed(2.2))) == []


def test_a_second_question_before_the_first_answer_is_noticed() -> None:
    early = tuple(replace(each, at=2.5) if each.id == "msg_2_q2" else each for each in GOOD.deliveries)
    wrong = (GOOD.answers[0], replace(GOOD.answers[1], selected=7), GOOD.answers[2])

    assert "asked question 2 without an answer" in complaint(replace(GOOD, deliveries=early))
    assert "asked question 2 without an answer" in "\n".join(account(replace(GOOD, answers=wrong)))


def test_two_questions_with_one_address_are_noticed() -> None:
    shared = tuple(replace(each, body=each.body.replace("2-q2", "2-q1")) for each in GOOD.deliveries)
    assert "used a response_url for several questions" in complaint(replace(GOOD, deliveries=shared))


def test_an_answer_that_the_user_did_not_give_is_noticed() -> None:
    assert "when the user had chosen [1]" in complaint(told("ask 1 yes"))
    assert "when the user had chosen [1]" in complaint(told("Error: 'Question 1 of 1?': 7 is none of the 3 choices"))


def test_the_first_answer_counts() -> None:
    second = answered(200, selected=0, first=False)
    assert account(replace(ONE, answers=(*ONE.answers, second))) == []
    assert "when the user had chosen [1]" in complaint(replace(told("ask 1 yes"), answers=(*ONE.answers, second)))


def test_an_answer_that_is_no_choice_is_refused_and_nothing_is_done() -> None:
    refusal = "Error: 'Question 1 of 1?': 7 is none of the 3 choices, numbered from 0. Ask again."
    refused = replace(told(refusal), answers=(answered(200, selected=7),), effects=())

    assert account(refused) == []
    assert "went on all the same" in complaint(replace(refused, effects=done(ASK, 3.5)))


def test_a_result_without_the_answers_is_noticed() -> None:
    assert "when the user had chosen []" in complaint(replace(ONE, answers=()))


def test_a_result_after_half_of_the_answers_is_noticed() -> None:
    half = (*GOOD.deliveries[:3], result(TWICE, "ask_twice 2 yes", 6.0))
    assert "was answered 'ask_twice 2 yes' after 1 answers" in complaint(
        replace(GOOD, deliveries=half, answers=GOOD.answers[:2])
    )


def test_what_is_done_twice_is_noticed() -> None:
    again = replace(ONE, effects=(*done(ASK, 3.3), *done(ASK, 3.6)))
    found = "\n".join(account(again))
    assert "was done 2 times" in found
    assert "got past its last answer and did its work 2 times (resumed)" in found


def test_what_may_be_repeated_is_repeated() -> None:
    call = replace(AGAIN, n=1, id="call_1")
    again = replace(
        ONE,
        sent=(Sent(call, 1.0, acknowledged=True),),
        deliveries=(question(call, 1, 2.0), result(call, "ask_again 1 no", 4.0)),
        effects=(*done(call, 3.3), *done(call, 3.6)),
    )
    assert account(again) == []


def test_a_result_without_the_deed_is_noticed() -> None:
    assert "was done 0 times" in complaint(replace(ONE, effects=()))


def test_not_knowing_needs_a_death_while_it_ran() -> None:
    unknown = told(UNKNOWN)

    assert account(replace(unknown, deaths=killed(1.5))) == []  # before it had asked
    assert account(replace(unknown, deaths=killed(3.5))) == []  # after the answer
    assert "not known" in complaint(unknown)
    assert "not known" in complaint(replace(unknown, deaths=killed(2.2, 2.5, 2.9)))  # it was suspended


def test_giving_up_needs_three_deaths() -> None:
    assert account(replace(told(GIVEN_UP), deaths=killed(3.1, 3.3, 3.5))) == []
    assert "given up" in complaint(replace(told(GIVEN_UP), deaths=killed(3.1, 3.3)))


def test_an_open_question_takes_the_first_answer() -> None:
    bad: list[tuple[int | None, ...]] = [(404,), (410,), (400,), (401,), (200, 410), ()]
    good: list[tuple[int | None, ...]] = [(200,), (None, 200), (None, 503, 410), (None, 410)]
    for statuses in bad:
        assert "answer 1 to call 1 was answered" in complaint(replace(ONE, answers=(answered(*statuses),)))
    for statuses in good:
        assert account(replace(ONE, answers=(answered(*statuses),))) == []


def test_a_repeated_answer_may_come_too_late() -> None:
    late = answered(410, first=False)
    bad = answered(400, first=False)
    assert account(replace(ONE, answers=(*ONE.answers, late))) == []
    assert "was answered (400,)" in complaint(replace(ONE, answers=(*ONE.answers, bad)))


def test_a_question_after_the_result_is_noticed() -> None:
    late = replace(ONE, deliveries=(*ONE.deliveries, question(ASK, 1, 5.0, "late")))
    assert "got a message after its result" in "\n".join(account(late))


def test_a_message_of_the_wrong_sort_is_noticed() -> None:
    link = message(ASK, "oauth", 2.5, "link", auth_url="http://127.0.0.1:1")
    assert "got a message with" in complaint(replace(ONE, deliveries=(ONE.deliveries[0], link, ONE.deliveries[1])))
