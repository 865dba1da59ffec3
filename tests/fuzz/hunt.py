"""Looking for input that breaks something: a few examples in the ordinary tests, many in the soak.

The seed is printed; `FUZZ_SEED=...` repeats a run.
"""

import os
import random
from collections.abc import Callable
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

SEED = int(os.environ.get("FUZZ_SEED") or random.SystemRandom().randrange(10**6))
_MANY = 1_500 if os.environ.get("RAPKIT_SOAK") == "short" else 20_000


def _examples(few: int, many: int) -> pytest.MarkDecorator:
    marks = pytest.mark.soak
    return pytest.mark.parametrize(
        "examples", [pytest.param(few, id="few"), pytest.param(many, id="many", marks=marks)]
    )


few_or_many = _examples(200, _MANY)
fewer_or_many = _examples(80, _MANY)
"""For what is one of several ways to the same place."""
few_calls_or_many = _examples(25, _MANY // 10)
"""For what takes a whole call, or several, each time."""


def hunt(examples: int, inputs: SearchStrategy[T], check: Callable[[T], object]) -> None:
    """Check so many inputs; the smallest one that fails is reported."""
    print(f"seed {SEED}", end=" ")

    @seed(SEED)
    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large],
    )
    @given(inputs)
    def run(given_input: T) -> None:
        check(given_input)

    run()
