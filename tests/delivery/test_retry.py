import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapkit.delivery.retry import POLICIES, PostKind, RetryDecision, RetryPolicy, retry_decision
from rapkit.errors import ConfigError

DAY = 24 * 3600


def policies() -> st.SearchStrategy[RetryPolicy]:
    def build(first: float, factor: float, stretch: float, horizon: float, jitter: float) -> RetryPolicy:
        return RetryPolicy(first, factor, first * stretch, horizon, jitter)

    return st.builds(
        build,
        first=st.floats(0.5, 60),
        factor=st.floats(1, 1e6),
        stretch=st.floats(1, 1e4),
        horizon=st.floats(0, 5000),
        jitter=st.floats(0, 0.9),
    )


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, RetryDecision.DELIVERED),
        (202, RetryDecision.DELIVERED),
        (204, RetryDecision.DELIVERED),
        (299, RetryDecision.DELIVERED),
        (404, RetryDecision.GONE),
        (410, RetryDecision.GONE),
        (400, RetryDecision.REFUSED),
        (401, RetryDecision.REFUSED),
        (408, RetryDecision.REFUSED),
        (409, RetryDecision.REFUSED),
        (413, RetryDecision.REFUSED),
        (429, RetryDecision.REFUSED),
        (499, RetryDecision.REFUSED),
        (500, RetryDecision.RETRY),
        (503, RetryDecision.RETRY),
        (599, RetryDecision.RETRY),
        (301, RetryDecision.RETRY),
        (302, RetryDecision.RETRY),
        (308, RetryDecision.RETRY),
        (101, RetryDecision.RETRY),
        (999, RetryDecision.RETRY),
    ],
)
def test_a_status_decides_what_becomes_of_the_message(status: int, expected: RetryDecision) -> None:
    """INV-4, INV-5, CB-3, CB-4."""
    assert retry_decision(status) is expected


@given(st.integers(400, 499))
def test_no_4xx_is_ever_retried(status: int) -> None:
    """INV-5, CB-4."""
    assert retry_decision(status) is not RetryDecision.RETRY


@pytest.mark.parametrize(
    ("attempts", "age", "expected"),
    [
        (1, 0.0, 1.0),
        (2, 1.0, 2.0),
        (3, 3.0, 4.0),
        (7, 63.0, 60.0),  # capped
        (1000, 63.0, 60.0),
        (15, 550.0, 50.0),  # the last attempt is at the horizon
        (15, 599.0, 1.0),
        (15, 599.5, None),  # too soon after the one before
        (16, 600.0, None),
        (16, 700.0, None),
    ],
)
def test_waits_double_up_to_the_cap_and_end_at_the_horizon(attempts: int, age: float, expected: float | None) -> None:
    policy = RetryPolicy(first=1, factor=2, cap=60, horizon=600, jitter=0)

    assert policy.delay(attempts, age, random=0.3) == expected


def test_jitter_only_shortens_a_wait() -> None:
    policy = RetryPolicy(first=10, factor=2, cap=60, horizon=600, jitter=0.5)

    assert policy.delay(1, 0, random=0.0) == 10
    assert policy.delay(1, 0, random=0.5) == 7.5
    assert policy.delay(1, 0, random=0.999) == pytest.approx(5, abs=0.01)


@pytest.mark.parametrize(
    ("retry_after", "expected"),
    [(None, 4.0), (0.0, 4.0), (3.0, 4.0), (30.0, 30.0), (86400.0, 60.0), (math.inf, 60.0), (-5.0, 4.0)],
)
def test_a_receiver_can_ask_for_a_longer_wait_up_to_the_cap(retry_after: float | None, expected: float) -> None:
    policy = RetryPolicy(first=1, factor=2, cap=60, horizon=600, jitter=0)

    assert policy.delay(3, 0, 0, retry_after=retry_after) == expected


def test_a_receiver_cannot_push_an_attempt_past_the_horizon() -> None:
    policy = RetryPolicy(first=1, factor=2, cap=60, horizon=600, jitter=0)

    assert policy.delay(3, 590, 0, retry_after=60) == 10


@given(policies(), st.integers(1, 2000), st.floats(0, 5000))
def test_without_jitter_a_later_attempt_never_waits_less(policy: RetryPolicy, attempts: int, age: float) -> None:
    steady = RetryPolicy(policy.first, policy.factor, policy.cap, policy.horizon, jitter=0)
    sooner, later = steady.delay(attempts, age, 0), steady.delay(attempts + 1, age, 0)

    assert (sooner is None) <= (later is None)
    if sooner is not None and later is not None:
        assert sooner <= later


@given(policies(), st.data())
def test_every_message_is_given_up_within_the_horizon(policy: RetryPolicy, data: st.DataObject) -> None:
    random = data.draw(st.floats(0, 1, exclude_max=True))
    age, attempts = 0.0, 1
    while (wait := policy.delay(attempts, age, random)) is not None:
        assert 0 < wait <= max(policy.cap, policy.first)
        age, attempts = age + wait, attempts + 1
        assert age <= policy.horizon * (1 + 1e-9)
        # jitter never makes more attempts than the shortest wait allows
        assert attempts <= policy.horizon / (policy.first * 0.1) + 3


@pytest.mark.parametrize(
    ("kind", "horizon"),
    [
        (PostKind.INVOCATION, 600),
        (PostKind.CALLBACK, 3 * DAY),
        (PostKind.QUESTION, 3600),
        (PostKind.VIEW, 300),
        (PostKind.ANSWER, 3600),
        (PostKind.NOTICE, 0),
    ],
)
def test_each_kind_has_its_own_horizon(kind: PostKind, horizon: float) -> None:
    policy = POLICIES[kind]
    age, attempts = 0.0, 1
    while (wait := policy.delay(attempts, age, 0.5)) is not None:
        age, attempts = age + wait, attempts + 1

    assert age == pytest.approx(horizon, abs=2)


@pytest.mark.parametrize("kind", [kind for kind in PostKind if kind is not PostKind.NOTICE])
def test_each_kind_backs_off_exponentially(kind: PostKind) -> None:
    """Item 20 · INV-4, CB-3: every wait is twice the one before, up to the cap."""
    policy = POLICIES[kind]
    waits = [policy.delay(attempts, 0.0, 0.0) for attempts in range(1, 8)]

    assert waits == [min(2.0**step, policy.cap) for step in range(7)]
    assert policy.cap >= 60


def test_a_notice_is_sent_once() -> None:
    assert POLICIES[PostKind.NOTICE].delay(1, 0.0, 0.0) is None


def test_a_callback_outlasts_a_weekend_without_hammering() -> None:
    policy = POLICIES[PostKind.CALLBACK]
    age, attempts = 0.0, 1
    while (wait := policy.delay(attempts, age, 0.5)) is not None:
        age, attempts = age + wait, attempts + 1

    assert 20 < attempts < 150


@pytest.mark.parametrize(
    "numbers",
    [
        (0, 2, 60, 600, 0),
        (-1, 2, 60, 600, 0),
        (61, 2, 60, 600, 0),
        (1, 0.5, 60, 600, 0),
        (1, 2, 60, -1, 0),
        (1, 2, 60, 600, 1),
        (1, 2, 60, 600, -0.1),
        (1, 2, math.inf, 600, 0),
        (math.nan, 2, 60, 600, 0),
    ],
)
def test_a_schedule_that_would_spin_or_shrink_is_refused(numbers: tuple[float, float, float, float, float]) -> None:
    with pytest.raises(ConfigError):
        RetryPolicy(*numbers)
