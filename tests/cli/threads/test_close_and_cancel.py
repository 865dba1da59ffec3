"""`rapkit threads close` and `rapkit threads cancel`."""

from tests.call_ids import numbers, plain
from tests.cli.agent_home import Home
from tests.cli.command import eventually


def test_threads_are_closed(home: Home) -> None:
    threads = [home.ask("Good morning") for _ in range(2)]

    outcome = home.run("threads", "close", *threads)

    assert (outcome.code, outcome.out, outcome.err) == (0, "".join(f"{each} is closed.\n" for each in threads), "")
    for each in threads:
        home.wait(each, "closed")
    assert home.run("threads", "close", threads[0]).out == f"{threads[0]} was closed already.\n"


def test_who_mistypes_one_has_closed_none(home: Home) -> None:
    thread_id = home.ask("Good morning")

    outcome = home.run("threads", "close", thread_id, "nothing-such")

    assert (outcome.code, outcome.out) == (2, "")
    assert "There is no thread 'nothing-such'." in outcome.err
    assert home.look(thread_id)["status"] == "idle"


def test_the_only_call_need_not_be_named(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]

    outcome = home.run("threads", "cancel", thread_id)

    assert (outcome.code, outcome.out, outcome.err) == (0, f"Watch Oslo ({invocation['id']}) is cancelled.\n", "")
    assert home.wait(thread_id, "idle")["pending_calls"] == []


def test_of_several_calls_one_is_named(home: Home) -> None:
    thread_id = home.ask("ask twice", until="waiting")

    unnamed = home.run("threads", "cancel", thread_id)
    wrong = home.run("threads", "cancel", thread_id, "c7")
    outcome = home.run("threads", "cancel", thread_id, "c2")

    assert (unnamed.code, wrong.code, outcome.code) == (2, 2, 0)
    assert "Say which one to cancel:\n  c1  ask_user(" in plain(unnamed.err)
    assert "There is no pending call or subscription 'c7'. There are: c1, c2." in plain(wrong.err)
    eventually(lambda: numbers(call["call_id"] for call in home.look(thread_id)["pending_calls"]) == ["c1"])


def test_a_subscription_can_be_cancelled(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]
    home.call_back(invocation, type="tool_result", text="Subscribed.", subscription=True)
    eventually(lambda: bool(home.look(thread_id)["subscriptions"]))

    call_id = invocation["id"]
    assert home.run("threads", "cancel", thread_id, call_id[:8]).out == f"Watch Oslo ({call_id}) is cancelled.\n"
    eventually(lambda: not home.look(thread_id)["subscriptions"])


def test_where_nothing_is_pending_that_is_said(home: Home) -> None:
    thread_id = home.ask("Good morning")

    outcome = home.run("threads", "cancel", thread_id)

    assert outcome.code == 2
    assert outcome.err == f"rapkit: Nothing is pending in thread {thread_id}, and it has no subscriptions.\n"
