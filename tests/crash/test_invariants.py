"""The account of a crash test is itself tested: each way a server could be broken is made up, and must be complained about."""

import json
from dataclasses import replace
from typing import Any

from tests.crash.history import Call, Death, Delivery, Effect, History, Sent
from tests.crash.invariants import account
from tests.crash.processes import complaints_in

SLOW = Call(1, "slow", 0.1, "thread_0", "call_1", "model_1")
PAY = Call(2, "pay", 0.1, "thread_0", "call_2")
UNKNOWN = "Error: the server was interrupted while pay ran, and it is not known whether it took effect. Find out."
GIVEN_UP = "Error: slow was interrupted 3 times and given up. Tell the user."


def sent(call: Call) -> Sent:
    return Sent(call, at=1.0, acknowledged=True)


def ran(call: Call, start: float = 1.1, pid: int = 10) -> tuple[Effect, ...]:
    return (Effect(start, pid, "start", call.n), Effect(start + 0.1, pid, "end", call.n))


def result(
    call: Call, text: str | None = None, at: float = 2.0, webhook_id: str | None = None, **changes: Any
) -> Delivery:
    message = {"type": "tool_result", "group_id": call.group_id, "id": call.id, "call_id": call.call_id}
    body = json.dumps({**message, "text": text or f"{call.tool} {call.n}", **changes})
    return Delivery(at, call.path, webhook_id or f"msg_{call.n}", body)


def killed(*times: float, pid: int = 10, who: str = "server") -> tuple[Death, ...]:
    return tuple(Death(at, pid, who) for at in times)


GOOD = History((sent(SLOW), sent(PAY)), (result(SLOW), result(PAY)), (*ran(SLOW), *ran(PAY)))


def complaint(history: History) -> str:
    (only,) = account(history)
    return only


def test_a_good_run_is_not_complained_about() -> None:
    assert account(GOOD) == []


def test_an_acknowledged_call_without_a_result_is_missed() -> None:
    assert "call 1 (slow, thread_0/call_1) was acknowledged and never answered" in complaint(
        replace(GOOD, deliveries=(result(PAY),))
    )


def test_a_result_that_nobody_accepted_is_missed() -> None:
    refused = replace(result(SLOW), answer="500")
    assert "never answered" in complaint(replace(GOOD, deliveries=(refused, result(PAY))))


def test_a_call_that_was_not_acknowledged_may_go_without_a_result() -> None:
    assert account(History((replace(sent(SLOW), acknowledged=False),))) == []


def test_two_results_are_one_too_many() -> None:
    twice = (*GOOD.deliveries, result(SLOW, webhook_id="msg_other"))
    assert "2 results, not one" in "\n".join(account(replace(GOOD, deliveries=twice)))


def test_two_messages_that_say_different_things_under_one_id_are_no_retransmission() -> None:
    changed = (*GOOD.deliveries, result(PAY, UNKNOWN, at=3.0))
    history = replace(GOOD, deliveries=changed, deaths=killed(2.5))
    assert "different bodies" in complaint(history)


def test_the_same_message_again_after_a_death_or_a_fault_is_a_retransmission() -> None:
    after_death = replace(GOOD, deliveries=(*GOOD.deliveries, result(SLOW, at=3.0)), deaths=killed(2.5))
    refused = replace(result(SLOW), answer="hang up")
    after_fault = replace(GOOD, deliveries=(refused, result(SLOW, at=3.0), result(PAY)))

    assert account(after_death) == []
    assert account(after_fault) == []


def test_the_same_message_again_for_no_reason_is_noticed() -> None:
    again = replace(GOOD, deliveries=(*GOOD.deliveries, result(SLOW, at=3.0)))
    assert "was sent msg_1 again, though nobody had died" in complaint(again)


def test_a_death_counts_from_when_the_message_was_sent_on() -> None:
    again = (*GOOD.deliveries[1:], replace(result(SLOW), began=1.5), result(SLOW, at=3.0))
    assert account(replace(GOOD, deliveries=again, deaths=killed(1.7))) == []
    assert "again, though nobody had died" in complaint(replace(GOOD, deliveries=again, deaths=killed(1.3)))


def test_a_message_without_an_id_is_noticed() -> None:
    nameless = replace(GOOD, deliveries=(replace(result(SLOW), id=""), result(PAY)))
    assert "without webhook-id" in complaint(nameless)


def test_a_result_for_a_call_that_was_never_sent_is_noticed() -> None:
    stranger = Call(9, "quick", 0, "thread_1", "call_2")
    assert "/cb/9, which was never sent" in complaint(replace(GOOD, deliveries=(*GOOD.deliveries, result(stranger))))


def test_a_result_with_the_ids_of_another_call_is_noticed() -> None:
    for wrong in ({"group_id": "thread_7"}, {"id": "call_9"}, {"call_id": None}, {"type": "oauth"}):
        found = account(replace(GOOD, deliveries=(result(SLOW, **wrong), result(PAY))))
        assert "got a message with" in "\n".join(found)


def test_one_message_for_two_calls_is_noticed() -> None:
    shared = (result(SLOW, webhook_id="msg"), result(PAY, webhook_id="msg"))
    assert "went to several calls" in complaint(replace(GOOD, deliveries=shared))


def test_the_answer_to_another_call_is_noticed() -> None:
    assert "answered 'slow 3'" in complaint(replace(GOOD, deliveries=(result(SLOW, "slow 3"), result(PAY))))


def test_an_answer_no_handler_gave_is_noticed() -> None:
    assert "never came to the end" in complaint(replace(GOOD, effects=ran(PAY)))


def test_not_knowing_is_for_what_must_not_be_repeated_and_needs_a_death() -> None:
    unknown = replace(GOOD, deliveries=(result(SLOW), result(PAY, UNKNOWN)))
    lazy = replace(GOOD, deliveries=(result(SLOW, UNKNOWN), result(PAY)), deaths=killed(1.5))

    assert account(replace(unknown, deaths=killed(1.5))) == []
    assert "with 0 deaths" in complaint(unknown)
    assert "call 1 (slow" in complaint(lazy)


def test_giving_up_needs_three_deaths_and_a_tool_that_may_be_repeated() -> None:
    given_up = replace(GOOD, deliveries=(result(SLOW, GIVEN_UP), result(PAY)))
    never = replace(GOOD, deliveries=(result(SLOW), result(PAY, GIVEN_UP)), deaths=killed(1.2, 1.4, 1.6))

    assert account(replace(given_up, deaths=killed(1.2, 1.4, 1.6))) == []
    assert "with 2 deaths" in complaint(replace(given_up, deaths=killed(1.2, 1.4)))
    assert "call 2 (pay" in complaint(never)


def test_what_must_not_be_repeated_and_was_is_noticed() -> None:
    again = replace(GOOD, effects=(*GOOD.effects, *ran(PAY, 1.5, pid=11)), deaths=killed(1.3))
    assert "ran 2 times, and may run once" in complaint(again)


def test_a_run_that_nobody_asked_for_is_noticed() -> None:
    assert "call 9, which was never sent" in complaint(
        replace(GOOD, effects=(*GOOD.effects, Effect(1.0, 10, "start", 9)))
    )


def test_two_processes_that_run_one_call_at_once_are_noticed() -> None:
    lost_half_way = (Effect(1.1, 10, "start", 1), *ran(SLOW, 1.5, pid=11), *ran(PAY))
    again = replace(GOOD, effects=lost_half_way)

    assert account(replace(again, deaths=killed(1.3))) == []
    assert "ran in 10 and in 11 at once" in complaint(again)
    assert account(again, one_worker=False) == []


def test_one_process_that_runs_a_call_twice_is_noticed() -> None:
    assert "ran in 10 and in 10 at once" in complaint(replace(GOOD, effects=(*GOOD.effects, *ran(SLOW, 1.5))))


def test_a_log_with_something_grave_in_it_is_noticed() -> None:
    foreseen = '{"level": "error", "message": "the handler failed", "operation": "fail"}'
    grave = '{"level": "error", "message": "the handler failed", "operation": "pay"}'
    worse = '{"level": "critical", "message": "running calls has failed; restart the server"}'

    assert complaints_in(f"crash: 8 tools at ...\n{foreseen}\n{{cut sho") == []
    assert complaints_in(f"{foreseen}\n{grave}\n{worse}\n") == [grave, worse]
    assert complaints_in("Traceback (most recent call last):\n") == ["Traceback (most recent call last):"]
