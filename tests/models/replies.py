"""What a stand-in for a provider is told to answer."""

import asyncio
import contextlib
import itertools
import json
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Self

from starlette.applications import Starlette
from starlette.responses import JSONResponse, Response, StreamingResponse

from tests.server.served_toolset import serving_app


@dataclass(frozen=True)
class Call:
    """A call the model wants; `arguments` as a text if they are to be no JSON. Without an id, one is made."""

    name: str
    arguments: dict[str, Any] | str = field(default_factory=dict)
    id: str = ""

    @property
    def json(self) -> str:
        """The arguments as they are sent."""
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Say:
    """What the model says: thoughts, text, calls, in this order. Text is streamed word by word."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    input_tokens: int = 10
    output_tokens: int = 5
    why: str = ""

    @property
    def pieces(self) -> list[str]:
        """The text, cut after each space."""
        words = self.text.split(" ")
        return [word + " " for word in words[:-1]] + [words[-1]] if self.text else []


@dataclass(frozen=True)
class Fail:
    """An error instead of an answer."""

    status: int
    message: str = "Something is wrong."
    code: str | None = None
    headers: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class BreakOff:
    """A stream that ends in the middle: the connection is cut, or, `politely`, the stream just ends, or it ends with an `error`."""

    say: Say
    politely: bool = False
    error: str = ""


Answer = Say | Fail | BreakOff | str


class Refused(Exception):
    """The request is one that the real API refuses."""


class ProviderServer:
    """A provider on a port of its own, with a key made for it.

    Answers come from `replies`, then from `answering`. What was asked is in `requests`, what was refused in `refusals`.
    """

    def __init__(self, *replies: Answer) -> None:
        self.replies: deque[Answer] = deque(replies)
        self.answering: Callable[[dict[str, Any]], Answer] | None = None
        self.requests: list[dict[str, Any]] = []
        self.refusals: list[str] = []
        self.key = "sk-" + secrets.token_hex(16)
        self.url = ""
        self._exit = contextlib.AsyncExitStack()

    @property
    def env(self) -> dict[str, str]:
        """The variables by which the provider's SDK finds this server."""
        raise NotImplementedError

    @property
    def app(self) -> Starlette:
        """The API."""
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        port = await self._exit.enter_async_context(serving_app(self.app))
        self.url = f"http://127.0.0.1:{port}"
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._exit.aclose()

    def next_answer(self, body: dict[str, Any]) -> Say | Fail | BreakOff:
        """What is answered now."""
        if not self.replies and self.answering is None:
            raise AssertionError("the server was asked more often than it has replies")
        answer = self.replies.popleft() if self.replies or self.answering is None else self.answering(body)
        return Say(answer) if isinstance(answer, str) else answer


def streamed(events: Iterable[str], answer: Say | BreakOff, error: str) -> Response:
    """Server-sent events, and after them the `error` or a cut, if the answer is to end so."""
    last = [error] if isinstance(answer, BreakOff) and answer.error else []
    cut = isinstance(answer, BreakOff) and not answer.politely and not answer.error
    return StreamingResponse(_send(itertools.chain(events, last), cut), media_type="text/event-stream")


async def _send(events: Iterator[str], cut: bool) -> AsyncIterator[str]:
    for event in events:
        yield event
        await asyncio.sleep(0)
    if cut:
        raise ConnectionAbortedError("cut, as told")


def refusal(status: int, body: dict[str, Any], headers: dict[str, str] | None = None) -> Response:
    """An error as JSON."""
    return JSONResponse(body, status, headers)


def numbered(calls: tuple[Call, ...], prefix: str) -> list[tuple[str, Call]]:
    """Calls with the ids they have on the wire; like some models, it uses the same again and again."""
    return [(call.id or f"{prefix}{index}", call) for index, call in enumerate(calls)]
