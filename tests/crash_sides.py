"""The two sides of a commit on which a process can be lost, for tests that lose one at every step."""

import pytest

before_or_after_commit = pytest.mark.parametrize(
    "unheard",
    [
        pytest.param(False, id="before", marks=pytest.mark.soak),
        pytest.param(True, id="after"),
    ],
)
"""Lost before the commit, which the successor then makes itself; or after it, with nobody told, which is the harder of the two.

Each test runs its whole scenario once for every step, so the first side is left to `scripts/soak`.
"""
