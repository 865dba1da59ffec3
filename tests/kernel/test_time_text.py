"""Dates and times as models write them."""

from datetime import UTC, datetime

import pytest

from rapkit.kernel.time_text import format_time, parse_time


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


NOW = utc("2030-01-01T00:00")


@pytest.mark.parametrize(
    ("text", "zone", "means"),
    [
        ("2030-01-31T09:00", None, "2030-01-31T09:00"),
        ("2030-01-31T09:00", "", "2030-01-31T09:00"),
        ("2030-01-31T09:00", "UTC", "2030-01-31T09:00"),
        ("2030-01-31T09:00", "Europe/Berlin", "2030-01-31T08:00"),
        ("2030-07-31T09:00", "Europe/Berlin", "2030-07-31T07:00"),
        ("2030-07-31T09:00", "Asia/Kathmandu", "2030-07-31T03:15"),
        (" 2030-01-31 09:00:30 ", "America/New_York", "2030-01-31T14:00:30"),
        ("2030-01-31", "Europe/Berlin", "2030-01-30T23:00"),
        ("2030-01-31T09:00Z", "Europe/Berlin", "2030-01-31T09:00"),
        ("2030-01-31T09:00+02:00", None, "2030-01-31T07:00"),
        ("2030-01-31T09:00-09:30", "Europe/Berlin", "2030-01-31T18:30"),
    ],
)
def test_a_date_and_time_is_meant_in_its_zone_unless_it_has_an_offset_of_its_own(
    text: str, zone: str | None, means: str
) -> None:
    assert parse_time(text, zone, NOW) == utc(means)


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ("2030-03-31T01:59", "2030-03-31T00:59"),
        ("2030-03-31T02:00", "2030-03-31T01:00"),  # is 03:00 there
        ("2030-03-31T02:30", "2030-03-31T01:30"),  # is 03:30 there
        ("2030-03-31T03:00", "2030-03-31T01:00"),
    ],
)
def test_a_time_that_the_clocks_skip_is_as_long_after_the_change(text: str, means: str) -> None:
    assert parse_time(text, "Europe/Berlin", NOW) == utc(means)
    assert parse_time(text, "Europe/Berlin", utc("2030-03-31T01:10")) == utc(means)


@pytest.mark.parametrize(
    ("now", "means"),
    [
        ("2030-10-27T00:00", "2030-10-27T00:30"),
        ("2030-10-27T00:30", "2030-10-27T00:30"),
        ("2030-10-27T00:31", "2030-10-27T01:30"),
        ("2030-10-27T01:30", "2030-10-27T01:30"),
        ("2030-10-27T01:31", "2030-10-27T00:30"),
    ],
)
def test_of_a_time_that_comes_twice_the_first_is_meant_unless_that_is_over(now: str, means: str) -> None:
    assert parse_time("2030-10-27T02:30", "Europe/Berlin", utc(now)) == utc(means)


@pytest.mark.parametrize("text", ["", "tomorrow", "9:00", "2030-02-30T09:00", "2030-01-31T25:00", "1893456000", "NaN"])
def test_anything_else_is_no_date_and_time(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no date and time. Write it like 2030-01-31T09:00."):
        parse_time(text, None, NOW)


@pytest.mark.parametrize("zone", ["Europe", "Mars/Olympus", "../UTC", "/etc/localtime", "+02:00", "x" * 300, "a\0b"])
def test_anything_else_is_no_zone(zone: str) -> None:
    with pytest.raises(ValueError, match=r"is no IANA time zone. Write one like Europe/Berlin."):
        parse_time("2030-01-31T09:00", zone, NOW)


def test_a_moment_in_words() -> None:
    assert format_time(NOW + 0.7) == "Tuesday 2030-01-01 00:00:00 UTC"
