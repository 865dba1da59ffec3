import pytest

from rapkit.errors import Fenced, StoreBusy, StoreError, WrongKey
from rapkit.work.store_retry import retry_store_operation
from tests.log_records import our_messages


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rapkit.work.store_retry._PAUSE_BEFORE_TRYING_AGAIN", 0)


class Operation:
    """Fails with each of these in turn, and then gives 7."""

    def __init__(self, *failures: Exception) -> None:
        self._failures = list(failures)
        self.asked = 0

    async def __call__(self) -> int:
        self.asked += 1
        if self._failures:
            raise self._failures.pop(0)
        return 7


async def test_a_store_that_fails_is_asked_until_it_answers(caplog: pytest.LogCaptureFixture) -> None:
    operation = Operation(StoreError("disk full"), StoreBusy("locked"))

    assert await retry_store_operation(operation) == 7

    assert operation.asked == 3
    assert our_messages(caplog) == [
        "the store fails, and is asked again: disk full",
        "the store fails, and is asked again: locked",
    ]


@pytest.mark.parametrize("failure", [Fenced("not ours"), WrongKey("not our key"), ValueError("a bug")], ids=repr)
async def test_what_asking_again_would_not_change_is_let_through(failure: Exception) -> None:
    operation = Operation(failure)

    with pytest.raises(type(failure)):
        await retry_store_operation(operation)
    assert operation.asked == 1
