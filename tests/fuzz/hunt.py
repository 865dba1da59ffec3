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

few_or_many = pytest.mark.parametrize(
    "examples", [pytest.param(200, id="few"), pytest.param(_MANY, id="many", marks=pytest.mark.soak)]
)


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
