"""The grace period after a question disappears: keys pressed then were meant for the question, and are ignored."""

import time
from collections.abc import Callable

_SECONDS = 1.0


class GracePeriod:
    """Whether keys, and words that were begun before, belong to a question that is over."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._ends_at: float | None = None
        self._words_begun = False

    def begin(self, *, words_begun: bool) -> None:
        """A question has just gone; `words_begun` if the user was typing an answer to it."""
        self._ends_at = self._clock() + _SECONDS
        self._words_begun = words_begun

    @property
    def is_now(self) -> bool:
        """Whether the user cannot have seen yet that it is gone."""
        return self._ends_at is not None and self._clock() < self._ends_at

    def claim_words(self) -> bool:
        """Whether what stands in the line was begun as the answer. Only once: who enters it again, after being told, means it."""
        claimed, self._words_begun = self._words_begun, False
        return claimed

    def forget_words(self) -> None:
        """The line was emptied: what is typed from now on is something else."""
        self._words_begun = False
