"""When cron expressions are due, above all where clocks are changed. What is right there is what Debian's cron does."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from rapkit.errors import ConfigError
from rapkit.runtime.cron import Cron

BERLIN, NEW_YORK, LORD_HOWE = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"

CHANGES = [
    (BERLIN, "2027-03-28 01:00"),  # 02:00 becomes 03:00
    (BERLIN, "2026-10-25 01:00"),  # 03:00 becomes 02:00
    (NEW_YORK, "2027-03-14 07:00"),  # 02:00 becomes 03:00
    (NEW_YORK, "2026-11-01 06:00"),  # 02:00 becomes 01:00
    (LORD_HOWE, "2026-10-03 15:30"),  # 02:00 becomes 02:30
    (LORD_HOWE, "2027-04-03 15:00"),  # 02:00 becomes 01:30
    ("America/Santiago", "2026-09-06 04:00"),  # midnight becomes 01:00
    ("UTC", "2027-03-28 01:00"),  # nothing happens
]


def at(text: str, zone: str = "UTC", fold: int = 0) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone), fold=fold).timestamp()


def due(cron: Cron, after: float, until: float) -> list[float]:
    """Everything that is due after a time, up to another."""
    times: list[float] = []
    last = after
    while (following := cron.next_after(last)) is not None and following <= until:
        times.append(following)
        last = following
    return times


def shown(times: list[float]) -> list[str]:
    """In UTC, without the year."""
    return [f"{datetime.fromtimestamp(each, UTC):%m-%d %H:%M}" for each in times]


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_every_minute_is_every_minute_whatever_clocks_do(zone: str, change: str) -> None:
    middle = at(change)

    times = due(Cron("* * * * *", zone), middle - 7200, middle + 7200)

    assert times == [middle - 7200 + 60 * n for n in range(1, 241)]


@pytest.mark.parametrize(("zone", "change"), CHANGES)
@pytest.mark.parametrize(
    "cron", ["45 * * * *", "*/20 * * * *", "*/15 5 * * *", "* 1-2 * * *", "10 */2 * * *", "*/30 0 * * SUN"]
)
def test_with_a_star_it_is_due_whenever_the_clock_shows_it(zone: str, change: str, cron: str) -> None:
    """Looked up the slow way: every minute of five days, one by one."""
    minute, hour, _, _, weekday = cron.split()
    minutes, hours = numbers(minute, 60), numbers(hour, 24)
    begin = at(change) - 2 * 86400
    expected = []
    for instant in (begin + 60 * n for n in range(1, 5 * 1440 + 1)):
        local = datetime.fromtimestamp(instant, ZoneInfo(zone))
        if local.minute in minutes and local.hour in hours and (weekday == "*" or local.isoweekday() == 7):
            expected.append(instant)

    assert due(Cron(cron, zone), begin, begin + 5 * 86400) == expected


def numbers(field: str, end: int) -> set[int]:
    span, _, step = field.partition("/")
    first, _, last = span.partition("-")
    if span == "*":
        return set(range(0, end, int(step or 1)))
    return set(range(int(first), int(last or first) + 1))


@pytest.mark.parametrize(("zone", "change"), CHANGES)
@pytest.mark.parametrize("time", ["0 0", "30 0", "0 1", "30 1", "45 1", "59 1", "0 2", "15 2", "30 2", "0 3"])
def test_a_fixed_time_is_due_once_a_day_on_the_days_when_clocks_are_changed_too(
    zone: str, change: str, time: str
) -> None:
    noon = datetime.fromtimestamp(at(change), ZoneInfo(zone)).replace(hour=12, minute=0)
    begin, end = ((noon + timedelta(days=days)).timestamp() for days in (-3, 3))

    times = due(Cron(f"{time} * * *", zone), begin, end)

    days = [datetime.fromtimestamp(each, ZoneInfo(zone)).date() for each in times]
    assert len(set(days)) == len(days) == 6


@pytest.mark.parametrize(
    ("cron", "zone", "after", "expected"),
    [
        # A time that is skipped is due when the clocks have skipped it.
        ("30 2 * * *", BERLIN, "2027-03-26 12:00", ["03-27 01:30", "03-28 01:00", "03-29 00:30"]),
        ("0 2 * * *", BERLIN, "2027-03-26 12:00", ["03-27 01:00", "03-28 01:00", "03-29 00:00"]),
        ("30 2 * * *", NEW_YORK, "2027-03-12 12:00", ["03-13 07:30", "03-14 07:00", "03-15 06:30"]),
        ("15 2 * * *", LORD_HOWE, "2026-10-02 12:00", ["10-02 15:45", "10-03 15:30", "10-04 15:15"]),
        # Times that are skipped together are due together, once, also with one that was due then anyway.
        ("15,45 2 * * *", BERLIN, "2027-03-28 00:00", ["03-28 01:00", "03-29 00:15", "03-29 00:45"]),
        ("0 2,3 * * *", BERLIN, "2027-03-28 00:00", ["03-28 01:00", "03-29 00:00", "03-29 01:00"]),
        # A time that comes twice is due the first time.
        ("30 2 * * *", BERLIN, "2026-10-24 12:00", ["10-25 00:30", "10-26 01:30", "10-27 01:30"]),
        ("30 1 * * *", NEW_YORK, "2026-10-31 12:00", ["11-01 05:30", "11-02 06:30", "11-03 06:30"]),
        ("45 1 * * *", LORD_HOWE, "2027-04-03 12:00", ["04-03 14:45", "04-04 15:15", "04-05 15:15"]),
        # What goes by the clock is due twice then, and not at all when it is skipped.
        ("30 * * * *", BERLIN, "2026-10-25 00:00", ["10-25 00:30", "10-25 01:30", "10-25 02:30"]),
        ("45 * * * *", LORD_HOWE, "2027-04-03 14:00", ["04-03 14:45", "04-03 15:15", "04-03 16:15"]),
        ("*/30 2 * * *", BERLIN, "2027-03-27 12:00", ["03-29 00:00", "03-29 00:30", "03-30 00:00"]),
    ],
    ids=lambda value: value if isinstance(value, str) else f"{len(value)} times",
)
def test_where_clocks_are_changed(cron: str, zone: str, after: str, expected: list[str]) -> None:
    times = due(Cron(cron, zone), at(after), at(after) + 5 * 86400)

    assert shown(times)[:3] == expected


@pytest.mark.parametrize("minutes", range(0, 180, 15))
def test_asked_in_the_middle_of_a_change_it_never_names_a_time_that_is_over(minutes: int) -> None:
    begin = at("2026-10-24 23:30") + 60 * minutes  # two o'clock in Berlin comes at 00:00 and at 01:00

    for cron in ("45 2 * * *", "*/7 2 * * *", "0 3 * * *"):
        following = Cron(cron, BERLIN).next_after(begin)
        assert following is not None
        assert following > begin


def test_asked_in_the_hour_that_comes_again_a_fixed_time_of_it_is_over() -> None:
    again = at("2026-10-25 02:40", BERLIN, fold=1)

    assert shown([Cron("45 2 * * *", BERLIN).next_after(again) or 0.0]) == ["10-26 01:45"]


def test_a_time_that_is_due_is_not_due_again_and_a_moment_before_it_is() -> None:
    nine = at("2026-11-16 09:00", BERLIN)
    cron = Cron("0 9 * * *", BERLIN)

    assert cron.next_after(nine - 0.001) == nine
    assert cron.next_after(nine) == nine + 86400


def test_each_time_follows_from_the_one_before_for_years() -> None:
    times = due(Cron("0 9 29 2 *", BERLIN), at("2026-01-01"), at("2045-01-01"))

    assert [datetime.fromtimestamp(each, UTC).year for each in times] == [2028, 2032, 2036, 2040, 2044]
    assert all(later > earlier for earlier, later in pairwise(times))


def test_days_that_come_seldom_are_found() -> None:
    assert Cron("0 0 29 2 *", "UTC").next_after(at("2026-01-01")) == at("2028-02-29")
    assert Cron("*/5 0 * 2 MON#5", "UTC").next_after(at("2026-01-01")) == at("2044-02-29")
    assert Cron("*/5 9 L * *", "UTC").next_after(at("2026-02-01")) == at("2026-02-28 09:00")


def test_a_time_is_told_as_the_clock_shows_it() -> None:
    assert Cron("0 9 * * *", BERLIN).text(at("2026-11-16 08:00")) == "2026-11-16 09:00 Europe/Berlin"


@pytest.mark.parametrize(
    ("cron", "zone", "said"),
    [
        ("0 9 * *", "UTC", "'0 9 * *' is no cron expression: it has 4 fields. Write its five fields"),
        ("0 0 9 * * *", "UTC", "it has 6 fields"),
        ("", "UTC", "it has 0 fields"),
        ("@daily", "UTC", "it has 1 fields"),
        ("60 9 * * *", "UTC", "its minute is wrong"),
        ("0 9 * * MON-FUN", "UTC", 'its day of week is wrong, or there is no such day. Write its five fields, minute, hour, day of month'),
        ("0 9 30 2 *", "UTC", "its day of month is wrong"),
        ("0 9 * * *", "europe/berlin", "'europe/berlin' is no time zone. Did you mean 'Europe/Berlin'?"),
        ("0 9 * * *", "Europe", "is no time zone"),
        ("0 9 * * *", "../../etc/passwd", 'Write its name in the IANA database, like "Europe/Berlin"'),
        ("0 9 * * *", "", "is no time zone"),
        ("0 9 * * *", "\0", "is no time zone"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_with_an_example(cron: str, zone: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Cron(cron, zone)

    assert said in str(refused.value)
