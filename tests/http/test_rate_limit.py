import pytest

from rapkit.http.rate_limit import RateLimit


def test_a_rate_allows_a_burst_and_then_one_after_another() -> None:
    now = 100.0
    rate = RateLimit(4.0, lambda: now)
    assert [rate.wait("anna") for _ in range(4)] == [0, 0, 0, 0]

    assert rate.wait("anna") == pytest.approx(0.25)
    now += 0.25
    assert rate.wait("anna") == 0
    assert rate.wait("anna") == pytest.approx(0.25)
    now += 3600
    assert [rate.wait("anna") > 0 for _ in range(5)] == [False, False, False, False, True]


def test_a_rate_below_one_a_second_still_lets_one_in() -> None:
    now = 0.0
    rate = RateLimit(0.1, lambda: now)

    assert rate.wait("anna") == 0
    assert rate.wait("anna") == pytest.approx(10)


def test_without_a_rate_nobody_waits() -> None:
    rate = RateLimit(None)

    assert all(rate.wait("anna") == 0 for _ in range(1000))


def test_a_bucket_that_has_filled_up_is_forgotten() -> None:
    now = 0.0
    rate = RateLimit(10.0, lambda: now)
    for number in range(1000):
        rate.wait(f"stranger {number}")
    assert len(rate) == 1000

    now += 0.5
    rate.wait("somebody")
    assert len(rate) == 1001

    now += 0.5
    rate.wait("somebody")
    assert len(rate) == 1


def test_a_bucket_that_is_in_use_is_not_forgotten() -> None:
    now = 0.0
    rate = RateLimit(2.0, lambda: now)
    refused = 0
    for step in range(100):
        now = step * 0.25
        rate.wait(f"stranger {step}")
        refused += rate.wait("greedy") > 0

    assert refused == 100 - 2 - 49  # a burst of two, then every second time
    assert len(rate) <= 6


def test_strangers_with_any_number_of_addresses_take_up_bounded_memory() -> None:
    rate = RateLimit(1.0, lambda: 0.0, most=100)
    for number in range(10_000):
        assert rate.wait(f"stranger {number}") == 0

    assert len(rate) == 100
    assert rate.wait("stranger 9999") > 0
    assert rate.wait("stranger 9900") > 0
    assert rate.wait("stranger 9899") == 0  # the first to be forgotten: it was used longest ago


def test_past_the_bound_those_used_longest_ago_are_forgotten_first() -> None:
    rate = RateLimit(1.0, lambda: 0.0, most=3)
    for key in ("a", "b", "c", "a", "d"):
        rate.wait(key)

    assert rate.wait("a") > 0  # refused in between, and so not the oldest
    assert rate.wait("c") > 0
    assert rate.wait("b") == 0


def test_an_infinite_rate_is_none() -> None:
    rate = RateLimit(float("inf"))

    assert all(rate.wait("anna") == 0 for _ in range(1000))
    assert len(rate) == 0
