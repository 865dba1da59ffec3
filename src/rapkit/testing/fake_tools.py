"""Fake tool servers, whose calls the test answers."""

import asyncio
import inspect
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rapkit.clock import Clock
from rapkit.delivery.http_client import Poster
from rapkit.errors import RapkitError, ToolError
from rapkit.protocol import (
    CallCancelled,
    Invocation,
    ToolDefinition,
    ToolsetDocument,
    dump,
    parse_call_cancelled,
    parse_choice_made,
    parse_invocation,
    parse_thread_closed,
)
from rapkit.testing.bounded_wait import BoundedWait
from rapkit.testing.fake_calls import FakeCall
from rapkit.testing.requests import Reply

_ANYTHING: dict[str, Any] = {"type": "object"}
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_OK, _BAD, _UNKNOWN, _STALE, _UNAVAILABLE = 200, 400, 404, 409, 503

Answers = str | Callable[..., Any]
"""What a tool answers: a text, or a function of the call's arguments, async or not, that returns one."""


@dataclass(frozen=True, slots=True)
class FakeToolsEnvironment:
    """The environment of fake tools: their base URL, the transport to the agent, the clock, and how a test waits."""

    base: str
    transport: Poster
    clock: Clock
    waiting: BoundedWait


class FakeTool:
    """A tool whose calls the test answers: one by one with `call`, or all from now on with `answer`."""

    def __init__(self, tools: "FakeTools", name: str, description: str, schema: Mapping[str, Any]) -> None:
        self.name = name
        self.calls: list[FakeCall] = []
        """All that came, each once however often it was sent."""
        self._tools = tools
        self._definition = ToolDefinition(name=name, description=description, inputSchema=dict(schema))
        self._answers: Answers | None = None
        self._unseen: deque[FakeCall] = deque()

    def answer(self, answers: Answers) -> None:
        """Have every call from now on answered at once, and again until the agent has it.

        A `ToolError` of the function is an error the model reads.
        """
        self._answers = answers

    async def call(self) -> FakeCall:
        """The next call that the test has not looked at yet."""

        async def find() -> FakeCall | None:
            return self._unseen.popleft() if self._unseen else None

        async def told() -> str:
            return self._tools.told()

        return await self._tools.outside.waiting.until(find, f"{self.name!r} was not called", told)

    @property
    def definition(self) -> ToolDefinition:
        """The tool as discovery shows it."""
        return self._definition

    def take(self, call: FakeCall) -> None:
        """A call came."""
        self.calls.append(call)
        if self._answers is None:
            self._unseen.append(call)
        else:
            self._tools.spawn(self._answer(call, self._answers))

    async def _answer(self, call: FakeCall, answers: Answers) -> None:
        message = call.as_result(await _text(call, answers))
        message_id, pause = call.new_message_id(), _FIRST_PAUSE
        while await call.send(message, message_id=message_id) >= _UNAVAILABLE:
            await self._tools.outside.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)


class FakeTools:
    """A tool server of the test's own. It takes any arguments, unless a tool is given a schema, and is never lost.

    async with testing.agent(model=…, tools=[bank := testing.FakeTools("bank", ["transfer"])]) as agent:
        call = await bank.tool("transfer").call()
        await call.result("Done.")
    """

    def __init__(self, name: str, tools: Iterable[str] = (), *, version: str | None = None) -> None:
        self.name = name
        self.version = version
        """Invocations that know another version are refused as stale."""
        self.cancelled: list[CallCancelled] = []
        """The notices that a call was cancelled."""
        self.closed: list[str] = []
        """The threads that were closed."""
        self.repeated = 0
        """How many invocations came again."""
        self._tools: dict[str, FakeTool] = {}
        self._calls: dict[tuple[str, str], FakeCall] = {}
        self._failing: deque[int] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._mistakes: list[BaseException] = []
        self._outside: FakeToolsEnvironment | None = None
        self._questions = itertools.count(1)
        self._asked: dict[str, FakeCall] = {}
        for each in tools:
            self.tool(each)

    def tool(self, name: str, *, description: str = "", schema: Mapping[str, Any] | None = None) -> FakeTool:
        """The tool of this name; it is made if there is none. `schema` is a JSON Schema of its arguments."""
        if name not in self._tools:
            self._tools[name] = FakeTool(self, name, description or f"The tool {name}.", schema or _ANYTHING)
        return self._tools[name]

    @property
    def tools(self) -> Mapping[str, FakeTool]:
        """The tools by name."""
        return self._tools

    def fail(self, times: int = 1, status: int = _UNAVAILABLE) -> None:
        """Answer the next invocations with this status, and forget them."""
        self._failing.extend([status] * times)

    def told(self) -> str:
        """What came, a line each."""
        calls = "\n".join(f"  {call}" for call in self._calls.values())
        return f"What came to {self.name!r}:\n{calls or '  nothing'}"

    # What the test's environment does

    def open(self, outside: FakeToolsEnvironment) -> None:
        """Begin to answer."""
        if self._outside is not None:
            raise RuntimeError(f"The fake tools {self.name!r} were used before. Make new ones for each test.")
        self._outside = outside

    @property
    def outside(self) -> FakeToolsEnvironment:
        """What they find around them."""
        if self._outside is None:
            raise RuntimeError(f"No agent uses the fake tools {self.name!r} yet: testing.agent(tools=[…], …)")
        return self._outside

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done in the background."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._mistakes.append(error)

    def complain(self) -> None:
        """Raise what one of the test's own functions has raised; each error once."""
        if self._mistakes:
            raise self._mistakes.pop(0)

    async def close(self) -> None:
        """End what goes on in the background."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def response_url(self, call: FakeCall) -> str:
        """Where the answer to the next question of a call is to go."""
        url = f"{self.outside.base}/choices/{next(self._questions)}"
        self._asked[url] = call
        return url

    async def send(self, method: str, url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Reply:
        """One request."""
        path = url.removeprefix(self.outside.base)
        try:
            status = self._handle(path, url, body)
        except RapkitError as error:
            return _reply(_BAD, str(error).encode())
        return _reply(status, dump(self._document()) if path == "/.well-known/rap-toolset" else b"")

    def _handle(self, path: str, url: str, body: bytes) -> int:
        match path:
            case "/.well-known/rap-toolset":
                return _OK
            case "/invoke":
                return self._invoked(body)
            case "/cancel_tool_call":
                return self._cancel(parse_call_cancelled(body))
            case "/close_thread":
                self.closed.append(parse_thread_closed(body).thread_id)
                return _OK
        if url not in self._asked:
            return _UNKNOWN
        self._asked[url].choose_for(parse_choice_made(body).selected)
        return _OK

    def _cancel(self, notice: CallCancelled) -> int:
        self.cancelled.append(notice)
        if (call := self._calls.get((notice.thread_id, notice.tool_call_id))) is not None:
            call.cancelled = True
        return _OK

    def _invoked(self, body: bytes) -> int:
        if self._failing:
            return self._failing.popleft()
        message = parse_invocation(body)
        if not isinstance(message, Invocation):
            return _BAD
        key = (message.group_id, message.id)
        if key in self._calls:
            self.repeated += 1
            return _OK
        if self.version is not None and message.toolset_version not in (None, self.version):
            return _STALE
        if message.operation not in self._tools:
            return _BAD
        call = self._calls[key] = FakeCall(message, self.outside.transport, self.outside.waiting, self.response_url)
        self._tools[message.operation].take(call)
        return _OK

    def _document(self) -> ToolsetDocument:
        definitions = tuple(tool.definition for tool in self._tools.values())
        return ToolsetDocument(
            name=self.name, endpoint=f"{self.outside.base}/invoke", tools=definitions, version=self.version
        )


async def _text(call: FakeCall, answers: Answers) -> str:
    if isinstance(answers, str):
        return answers
    try:
        said = answers(**call.arguments)
        return str(await said if inspect.isawaitable(said) else said)
    except ToolError as error:
        return f"Error: {error}"


def _reply(status: int, body: bytes) -> Reply:
    return Reply(status, {"content-type": "application/json"}, body)
