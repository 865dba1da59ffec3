"""Watch which tool servers an agent in this process cannot reach."""

import asyncio
import itertools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

Look = Callable[[], "Future[dict[str, str]] | None"]
"""Asks all servers; has what is wrong with those that do not answer as they should, by their names. None if no server can be asked."""

_PAUSES = (5.0, 10.0, 30.0, 60.0)  # between two looks, while something is wrong


class ServerWatch:
    """Says what is wrong with servers when a chat begins, and when it no longer is. That one is asked again in vain is not said again.

    `pauses` are the seconds between two looks while something is wrong; the last is repeated.
    """

    def __init__(self, look: Look, say: Callable[[str], None], pauses: Sequence[float] = _PAUSES) -> None:
        self._look = look
        self._say = say
        self._pauses = pauses
        self._problems: dict[str, str] = {}
        self._warnings: set[str] = set()

    async def run(self) -> None:
        """Run until all servers answer, or none can be asked any more."""
        for pause in itertools.chain(self._pauses, itertools.repeat(self._pauses[-1])):
            asked = self._look()
            if asked is None:
                return
            self._compare(await asyncio.wrap_future(asked))
            if not self._problems:
                return
            await asyncio.sleep(pause)

    def _compare(self, found: dict[str, str]) -> None:
        for name, problem in found.items():
            if name not in self._problems and not any(each.endswith(problem) for each in self._warnings):
                self._say(problem)
        for name in self._problems.keys() - found.keys():
            self._say(f"{name} answers now.")
        self._problems = found

    def warn(self, text: str) -> None:
        """Say what the agent warns of, unless it is what is known to be wrong."""
        self._warnings.add(text)
        if not any(text.endswith(problem) for problem in self._problems.values()):
            self._say(text)


def say_once(look: Look, say: Callable[[str], None]) -> None:
    """Say what is wrong when it is known, in whatever thread that is, and nothing later."""

    def tell(asked: "Future[dict[str, str]]") -> None:
        if not asked.cancelled() and asked.exception() is None:
            for problem in asked.result().values():
                say(problem)

    if (asked := look()) is not None:
        asked.add_done_callback(tell)
