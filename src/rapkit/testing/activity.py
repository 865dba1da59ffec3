"""Whether anything happens: what a test waits for when it wants to know that nothing more will."""

import asyncio

_QUIET_TURNS = 50
_MOST_TURNS = 1_000_000


class Activity:
    """Counts what the server does: its steps in the store, its POSTs, its dealings with the clock.

    All of that happens on one event loop and without waiting for anything real, so a server that has done nothing for some turns of the
    loop does nothing until somebody calls it, answers it or advances the clock. Work in threads and other processes is not seen.
    """

    def __init__(self) -> None:
        self._count = 0

    def note(self) -> None:
        """Something happened."""
        self._count += 1

    async def settle(self) -> None:
        """Return when nothing happens any more."""
        quiet = 0
        for _ in range(_MOST_TURNS):
            before = self._count
            await asyncio.sleep(0)
            quiet = quiet + 1 if self._count == before else 0
            if quiet == _QUIET_TURNS:
                return
        raise AssertionError("The server does not come to rest: something in it goes on and on without waiting.")
