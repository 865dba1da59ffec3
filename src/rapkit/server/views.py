"""The views that a call shows while it runs, including its progress.

Runtimes keep the latest content of a view, so only the latest is worth sending: one that has not left when the next one comes is replaced.
Views have lanes of their own, one for each type of view of a call, so that they never hold up a result.
"""

import asyncio
import logging

from pydantic import ValidationError

from rapkit.clock import Clock
from rapkit.errors import StoreError
from rapkit.mailbox import Commit, Outgoing
from rapkit.protocol import ViewUpdate, dump
from rapkit.protocol.problems import problems
from rapkit.server.claimed_box import ClaimedBox

_PAUSE_BETWEEN_UPDATES = 0.25

log = logging.getLogger("rapkit.calls")


class Views:
    """The views of one call, or of one subscription."""

    def __init__(self, claimed_box: ClaimedBox, clock: Clock, group_id: str, largest: int) -> None:
        self._claimed_box = claimed_box
        self._clock = clock
        self._group_id = group_id
        self._largest = largest
        self._latest: dict[str, bytes] = {}
        self._flusher: asyncio.Task[None] | None = None
        self._committing = asyncio.Lock()

    async def show(self, view_type: str, content: object) -> None:
        """Show the content soon. `ValueError` if no message can carry it."""
        try:
            update = ViewUpdate.model_validate({"group_id": self._group_id, "view_type": view_type, "content": content})
            body = dump(update)
        except ValidationError as error:
            raise ValueError("\n".join(problems("view", ViewUpdate, error))) from None
        if len(body) > self._largest:
            raise ValueError(f"The view {view_type!r} has {len(body):,} bytes, and {self._largest:,} can be sent.")
        self._latest[view_type] = body
        if self._flusher is None or self._flusher.done():
            self._flusher = asyncio.create_task(self._flush())

    def take(self) -> list[Outgoing]:
        """What has not been sent yet, for the next commit."""
        latest, self._latest = self._latest, {}
        return [self._claimed_box.view_post(body, view_type) for view_type, body in latest.items()]

    async def close(self) -> None:
        """Send nothing more but what is being committed."""
        async with self._committing:
            if self._flusher is not None:
                self._flusher.cancel()

    async def _flush(self) -> None:
        while self._latest:
            async with self._committing:
                await self._try_to_send()
            await self._clock.sleep(_PAUSE_BETWEEN_UPDATES)

    async def _try_to_send(self) -> None:
        try:
            # Charged: that something was shown does not mean that the call may run again from the top.
            await self._claimed_box.commit(Commit(outgoing=self.take(), keep=True, charge=True))
        except StoreError as error:
            log.debug("a view is not shown: %s", error)  # the next one, or the result, tells more
