"""The runtime's callback endpoint in a test, which can be made to fail."""

import asyncio
from collections.abc import Mapping

from rapkit.delivery.http_client import HttpResponse
from rapkit.delivery.signatures import MESSAGE_ID
from rapkit.errors import DeliveryError
from rapkit.testing.activity import Activity
from rapkit.testing.inbox import Inbox

_UNAVAILABLE = 503


class Callbacks:
    """Answers what the server POSTs: with 200, unless the test says otherwise.

    What was not answered with 200 the server sends again, by the test's clock: advance it.
    """

    def __init__(self, inbox: Inbox, activity: Activity) -> None:
        self.attempts = 0
        """How many POSTs were begun."""
        self._inbox = inbox
        self._activity = activity
        self._faults: list[tuple[HttpResponse, bool]] = []
        self._down = False
        self._answering = asyncio.Event()
        self._answering.set()

    def fail(
        self, times: int = 1, status: int = _UNAVAILABLE, *, retry_after: float | None = None, heard: bool = False
    ) -> None:
        """Answer the next POSTs with another status. If they are `heard` all the same, they come a second time."""
        self._faults += [(HttpResponse(status, retry_after), heard)] * times

    def down(self) -> None:
        """Accept no connection, until `up`."""
        self._down = True

    def hang(self) -> None:
        """Accept connections and do not answer, until `up`."""
        self._answering.clear()

    def up(self) -> None:
        """Answer again, also those who still wait for it."""
        self._down = False
        self._faults.clear()
        self._answering.set()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """One POST of the server's."""
        self.attempts += 1
        self._activity.note()
        await self._answering.wait()
        self._activity.note()
        if self._down:
            raise DeliveryError("The test has the callback URL be down.")
        if not self._faults:
            return HttpResponse(self._inbox.take(url, headers[MESSAGE_ID], body))
        answer, heard = self._faults.pop(0)
        if heard:
            self._inbox.take(url, headers[MESSAGE_ID], body)
        return answer
