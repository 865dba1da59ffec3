import os
import random

import pytest


@pytest.fixture
def seed() -> int:
    """What all that is random in a test follows from; it is printed, and can be given."""
    return int(os.environ.get("CRASH_SEED") or random.SystemRandom().randrange(10**6))
