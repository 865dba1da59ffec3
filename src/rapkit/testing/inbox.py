"""Everything the server has sent, by call."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

from rapkit.errors import InvalidMessage
from rapkit.protocol import Callback, ViewUpdate, parse_callback
from rapkit.testing.call_messages import CallMessages, describe

T = TypeVar("T")

_URL = "http://runtime.test/callbacks"
_OK, _MALFORMED, _UNKNOWN = 200, 400, 404


class Inbox:
    """Takes messages as a runtime does: a repetition changes nothing, and what must not have been sent makes the test fail.

    `patience` is how many real seconds are waited for what is expected; `hint` says, when that is over, what else could be tried.
    """

    def __init__(self, patience: float, hint: Callable[[], Awaitable[str]]) -> None:
        self.messages: list[Callback] = []
        self.repeated = 0
        self._patience = patience
        self._hint = hint
        self._calls: dict[str, CallMessages] = {}
        self._views: dict[tuple[str, str], dict[str, Any]] = {}
        self._numbers = itertools.count(1)
        self._seen: set[str] = set()
        self._breaches: list[str] = []
        self._news = asyncio.Event()

    def expect(self, call: CallMessages) -> str:
        """The callback URL for a call; what comes there belongs to it."""
        url = f"{_URL}/{next(self._numbers)}"
        self._calls[url] = call
        return url

    def release(self, caller: str, thread_id: str, call_id: str | None = None) -> None:
        """It was acknowledged that nothing more is wanted of a call, or of any of a thread."""
        for call in self._calls.values():
            if (call.caller, call.thread_id) == (caller, thread_id) and call_id in (None, call.id):
                call.released = True

    def views(self, caller: str, thread_id: str) -> Mapping[str, Any]:
        """The latest content of the views of a thread."""
        return self._views.setdefault((caller, thread_id), {})

    def take(self, url: str, message_id: str, body: bytes) -> int:
        """A message came; says with what status it is answered."""
        call = self._calls.get(url)
        if call is None:
            return self._object("A message came to a callback URL that was never given away.", _UNKNOWN)
        if message_id in self._seen:
            self.repeated += 1
            return _OK
        try:
            message = parse_callback(body)
        except InvalidMessage as error:
            return self._object(f"{call} has sent what is no message: {error}", _MALFORMED)
        if objection := call.objection(message):
            sent = f"{call} has sent this: {describe(message)}\n{objection} Before that it had sent:\n{call.told()}"
            return self._object(sent, _UNKNOWN)
        self._seen.add(message_id)
        self._file(call, message)
        return _OK

    async def wait(self, call: CallMessages, what: str, find: Callable[[], T | None]) -> T:
        """What `find` finds, once it finds it. If it does not in time, or the server breaks the rules: `AssertionError`."""
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    self.complain()
                    if (found := find()) is not None:
                        return found
                    await self._news.wait()
        except TimeoutError:
            pass
        told = f"{call} has sent no {what} within {self._patience:g} s. It has sent:\n{call.told()}"
        raise AssertionError(f"{told}\n{await self._hint()}")

    def complain(self) -> None:
        """`AssertionError` if something was sent that must not have been; each breach is told once."""
        if self._breaches:
            told = "\n\n".join(self._breaches)
            self._breaches.clear()
            raise AssertionError(told)

    def _file(self, call: CallMessages, message: Callback) -> None:
        call.messages.append(message)
        self.messages.append(message)
        if isinstance(message, ViewUpdate):
            self._views.setdefault((call.caller, call.thread_id), {})[message.view_type] = message.content
        self._notify()

    def _object(self, breach: str, status: int) -> int:
        self._breaches.append(breach)
        self._notify()
        return status

    def _notify(self) -> None:
        self._news.set()
        self._news = asyncio.Event()
