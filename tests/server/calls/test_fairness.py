import pytest

from rapkit.server.calls.fairness import Fairness


def begin(fairness: Fairness, free: int, *callers: str) -> int:
    """Let callers begin as many calls as they may, one call of each at a time; how many places are free then."""
    while free and (able := [caller for caller in callers if fairness.room(caller, free) > 0]):
        for caller in able:
            if free and fairness.room(caller, free) > 0:
                fairness.take(caller)
                free -= 1
    return free


def test_a_caller_alone_gets_all_but_the_reserve() -> None:
    assert begin(Fairness(256, 224), 256, "anna") == 32


def test_beside_a_caller_that_has_all_it_may_there_are_places_for_several_others() -> None:
    fairness = Fairness(256, 224)
    free = begin(fairness, 256, "anna")
    for newcomer in ("bert", "carl", "dora"):
        assert fairness.room(newcomer, free) > 0
        for _ in range(fairness.room(newcomer, free)):
            fairness.take(newcomer)
            free -= 1

    assert free > 0


def test_what_a_busy_caller_gives_back_goes_to_those_that_have_less() -> None:
    fairness = Fairness(256, 224)
    free = begin(fairness, begin(fairness, 256, "anna"), "bert")
    for _ in range(100):
        fairness.give_back("anna")
        free += 1
        free = begin(fairness, free, "bert", "anna")

    assert fairness.room("anna", free) == 0
    assert free <= 32


def test_callers_that_come_together_share_the_places() -> None:
    fairness = Fairness(256, 224)

    assert begin(fairness, 256, "anna", "bert", "carl") == 32
    assert {fairness.quota(32 + 74).listed[caller] for caller in ("anna", "bert", "carl")} == {74}


@pytest.mark.parametrize("places", [1, 2, 7])
def test_without_a_reserve_one_caller_gets_every_place(places: int) -> None:
    assert begin(Fairness(places, places), places, "anna") == 0


def test_a_quota_says_the_same_for_every_caller() -> None:
    fairness = Fairness(16, 14)
    free = begin(fairness, 16, "anna")
    quota = fairness.quota(free)

    assert (quota.room("anna"), quota.room("bert")) == (0, fairness.room("bert", free)) == (0, 1)
