"""Send the user's messages until the agent has accepted them."""

import asyncio
import time
from collections.abc import Callable

from rapkit.cli.agent_api import AgentApi, AgentRefused, AgentUnreachable
from rapkit.cli.chat.background_feed import in_thread
from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.chat.unsent import Unsent, UnsentMessage

_PAUSES = (0.3, 0.6, 1.0, 2.0)


class Sender:
    """Sends messages one after the other, each again and again while the agent is away.

    `begun` is called with a thread that a message has begun, `refused` with a message that the agent does not take, and why, and `changed`
    whenever something is to be shown differently.
    """

    def __init__(
        self,
        api: AgentApi,
        user_id: str | None,
        *,
        begun: Callable[[DisplayedThread], None],
        refused: Callable[[UnsentMessage, str], None],
        changed: Callable[[], None],
    ) -> None:
        self._api = api
        self._user_id = user_id
        self._begun, self._refused, self._changed = begun, refused, changed
        self._awake = asyncio.Event()
        self.unsent = Unsent()

    def say(self, to: DisplayedThread, text: str) -> None:
        """Send this, as soon as it can be."""
        self.unsent.add(UnsentMessage(to, text))
        self.hurry()
        self._changed()

    def hurry(self) -> None:
        """Try at once: the agent is back."""
        self._awake.set()

    async def run(self) -> None:
        """Until it is cancelled."""
        failures = 0
        while True:
            message = self.unsent.next()
            self._awake.clear()
            if message is None:
                await self._awake.wait()
                continue
            try:
                await self._send(message)
                failures = 0
            except AgentUnreachable:
                if message.to.id is None:  # else the stream tells that it is away
                    message.to.away_since = message.to.away_since or time.time()
                await self._pause(_PAUSES[min(failures, len(_PAUSES) - 1)])
                failures += 1
            self._changed()

    async def _send(self, message: UnsentMessage) -> None:
        try:
            thread_id = await in_thread(lambda: message.send(self._api, self._user_id))
        except AgentRefused as error:
            self.unsent.drop(message)
            self._refused(message, str(error))
            return
        self.unsent.stored(message)
        if thread_id is not None:
            message.to.id, message.to.status, message.to.away_since = thread_id, "running", None
            self._begun(message.to)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._awake.wait()
        except TimeoutError:
            pass
