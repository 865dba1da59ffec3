import threading

import pytest

from rapkit.work.offload import LARGE, offload


async def test_work_on_much_is_done_in_one_thread_of_its_own_and_work_on_little_at_once() -> None:
    here = threading.get_ident()

    assert await offload(LARGE - 1, threading.get_ident) == here
    elsewhere = await offload(LARGE, threading.get_ident)
    assert elsewhere != here
    assert await offload(LARGE, threading.get_ident) == elsewhere


async def test_what_goes_wrong_there_is_raised_here() -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await offload(LARGE, int, "x")
