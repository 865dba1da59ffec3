import re

import pytest

from rapkit.call_ids import call_id, call_id_suffix, find_call

IDS = [call_id(1, "aaaabbbb"), call_id(2, "aaaabbbb"), call_id(12, "aaaabbbb"), call_id(12, "aaaacccc")]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("c1_aaaabbbb", "c1_aaaabbbb"),
        ("c1_aa", "c1_aaaabbbb"),
        ("c1_", "c1_aaaabbbb"),
        ("c2", "c2_aaaabbbb"),
        ("c12_aaaac", "c12_aaaacccc"),
        ("c12", None),
        ("c12_aaaa", None),
        ("c3", None),
        ("c", None),
        ("", None),
        ("_", None),
        ("bbbb", None),
        ("c1_aaaabbbbb", None),
    ],
)
def test_a_call_is_found_by_its_id_or_a_beginning_that_no_other_has(given: str, found: str | None) -> None:
    assert find_call(given, IDS) == found


def test_a_number_means_that_call_and_no_greater_one() -> None:
    """The first call is over, and the twelfth is not what is meant by its number."""
    assert find_call("c1", IDS[1:3]) is None


def test_a_suffix_is_short_and_can_stand_in_any_id() -> None:
    assert re.fullmatch(r"[a-z2-7]{16}", call_id_suffix("00ff", "thr_1"))


def test_a_thread_has_the_same_suffix_for_as_long_as_its_store_is_the_same() -> None:
    assert call_id_suffix("00ff", "thr_1") == call_id_suffix("00ff", "thr_1")


def test_all_of_the_thread_id_counts() -> None:
    """Threads of one moment begin alike, and children of one parent differ in the last character."""
    parent = "thr_01a1ec4a2fc417e7777234501969"
    threads = [parent, *(f"{parent}-{number:06}" for number in range(1, 1000)), f"{parent}-000001-000001"]

    assert len({call_id_suffix("00ff", thread) for thread in threads}) == len(threads)


def test_another_incarnation_of_the_store_has_other_suffixes() -> None:
    assert call_id_suffix("00ff", "thr_1") != call_id_suffix("00fe", "thr_1")
