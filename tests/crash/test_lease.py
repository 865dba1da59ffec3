import pytest

from rapkit import Durations
from rapkit.errors import ConfigError


@pytest.mark.parametrize("lease", [0, -1, 0.1, float("inf"), float("nan")])
def test_a_lease_that_could_not_be_renewed_in_time_is_refused(lease: float) -> None:
    with pytest.raises(ConfigError, match=r"lease is a number of seconds from 0\.2 on"):
        Durations(lease=lease)
