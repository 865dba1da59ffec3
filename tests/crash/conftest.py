import os
import random

import pytest

# Not test modules themselves, so pytest would not explain their assertions.
pytest.register_assert_rewrite("tests.crash.arena", "tests.crash.patient_arena", "tests.crash.processes")


@pytest.fixture
def seed() -> int:
    """What all that is random in a test follows from; it is printed, and can be given."""
    return int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(10**6))
