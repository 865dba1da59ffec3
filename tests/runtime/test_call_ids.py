import re

from rapkit.runtime.call_ids import call_id_suffix


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
