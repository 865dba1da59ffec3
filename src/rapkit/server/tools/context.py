"""`Context`: what a handler can learn about its call, and what it can do besides returning."""

import asyncio
import functools
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from rapkit.clock import Clock
from rapkit.server.tools.checkpoint import checked_cursor

if TYPE_CHECKING:
    from rapkit.server.invocation import StoredCall
    from rapkit.server.processes import Processes, Run
    from rapkit.server.resources.thread_resources import ThreadResources
    from rapkit.server.views import Views

P = ParamSpec("P")
R = TypeVar("R")

_PROGRESS = "progress"


class Interaction(Protocol):
    """The interface for asking the user."""

    async def choose(
        self,
        prompt: str,
        choices: Sequence[str],
        default: str | None,
        remember: Literal["thread", "user"] | None,
        expires_in: float | None,
    ) -> str:
        """The label the user chose."""

    async def oauth(self, provider: str, refused: str | None) -> str:
        """An access token of the user's."""


@dataclass(frozen=True, slots=True)
class ContextServices:
    """The services behind a context."""

    clock: Clock
    views: "Views"
    thread_resources: "ThreadResources"
    processes: "Processes"
    interaction: Interaction
    checkpoint: Callable[[str], Awaitable[None]]


def _awaited(
    method: "Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]",
) -> "Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]":
    """Have a method raise in a plain function, which cannot await it: nothing would be done, and the author would not notice."""

    @functools.wraps(method)
    def checked(self: "Context", /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        # A plain function runs in a thread without an event loop, unless it runs one of its own.
        if not self._is_async and asyncio._get_running_loop() is None:
            call = f"ctx.{method.__name__}"
            raise TypeError(
                f"{call} must be awaited, which {self._tool!r} cannot do: it is a plain function. "
                f"Make it an 'async def', and write 'await {call}(...)'."
            )
        return method(self, *args, **kwargs)

    return checked


class Context:
    """The call at hand. A parameter annotated with this class gets it, and is not shown to the model."""

    def __init__(
        self,
        call: "StoredCall",
        tool: str,
        services: ContextServices,
        cursor: str | None = None,
        *,
        is_async: bool = True,
    ) -> None:
        message = call.message
        self.user_id = getattr(message, "user_id", None)
        """The user the thread works for, if the runtime said so."""
        self.thread_id = message.group_id
        """The conversation thread that called."""
        self.thread_ancestors: tuple[str, ...] = getattr(message, "thread_ancestors", None) or ()
        """The threads above it, from the root down to its parent."""
        self.call_id = message.id
        """The id of this call within the thread."""
        self.cursor = cursor
        """How far the call or subscription has come: the last `checkpoint`, or the cursor of an event after it; None at first."""
        self._tool = tool
        self._services = services
        self._is_async = is_async
        self._cancelled = False

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the ids of the call."""
        logger = logging.getLogger(f"rapkit.tool.{self._tool}")
        return _CallLog(logger, {"thread_id": self.thread_id, "call_id": self.call_id})

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more. An async handler is cancelled; a plain function should look here and return."""
        return self._cancelled

    def cancel(self) -> None:
        """Say that nobody waits for the result any more: its programs are ended, and it can start no others."""
        self._cancelled = True
        self._services.processes.stop()

    def workspace(self) -> Path:
        """A folder of the thread's own, there for all its calls until the thread is closed or forgotten."""
        return self._services.thread_resources.workspace()

    @property
    def state(self) -> MutableMapping[str, Any]:
        """A small dict of the thread's own, of what JSON can hold. Changes are kept together with the handler's result or event."""
        return self._services.thread_resources.state

    async def choose(
        self,
        prompt: str,
        choices: Sequence[str],
        *,
        default: str | None = None,
        remember: Literal["thread", "user"] | None = None,
        expires_in: float | None = None,
    ) -> str:
        """Ask the user, and return the label they chose; `default`, else the first one, is what a dismissed question counts as.

        The handler is suspended: nothing of it stays in memory, and once the answer is there it runs again from the top, where this
        returns at once. What stands before this line must bear to be repeated. If nobody answers within `expires_in` seconds (three days,
        unless the toolset's durations say otherwise), or the answer is none of the choices, this raises `ToolError`. With `remember` the
        same question of the same tool is not asked again in this thread, or of this user.
        """
        return await self._services.interaction.choose(prompt, choices, default, remember, expires_in)

    async def oauth(self, provider: str, *, refused: str | None = None) -> str:
        """An access token of the user's. If there is none, the user is asked to authorise us, and the handler is suspended as in `choose`.

        `refused` is a token that the provider's API has turned down: it is refreshed, or the user is asked again. If the user denies, or
        does not authorise us in time, this raises `ToolError`.
        """
        return await self._services.interaction.oauth(provider, refused)

    @_awaited
    async def view(self, view_type: str, content: object) -> None:
        """Show something to the user beside the conversation: any JSON. Of updates in quick succession only the last is sent."""
        await self._services.views.show(view_type, content)

    @_awaited
    async def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Show how far the call has come: as the view "progress"."""
        content = {"call_id": self.call_id, "operation": self._tool, "done": done, "total": total, "note": note}
        await self._services.views.show(_PROGRESS, {key: value for key, value in content.items() if value is not None})

    @_awaited
    async def checkpoint(self, cursor: str) -> None:
        """Store how far the work has come; `ctx.cursor` has it from then on, also when the function runs again after a crash.

        In a subscription it is stored as with an event, and confirms the subscription if that is not confirmed yet: take a baseline,
        checkpoint it, and nothing that happens after it is missed. A tool that has called this runs again if the server is lost while it
        runs, whatever its annotations say, and should go on after `ctx.cursor`. Changes of `ctx.state` are stored with it. It raises if
        the call was cancelled.
        """
        await self._services.checkpoint(checked_cursor(cursor))
        self.cursor = cursor

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: str | Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str | None = None,  # noqa: A002 - what subprocess calls it
        timeout: float | None = None,
    ) -> "Run":
        """Run a program: `await` it for its output, or iterate over its lines with `async for`.

        It and all it starts end with the call: when it is cancelled, and after a crash of the server.
        """
        return self._services.processes.run(argv, cwd=cwd, env=env, input=input, timeout=timeout)

    @_awaited
    async def sleep(self, seconds: float) -> None:
        """Like `asyncio.sleep`, by the server's clock: the one that tests can advance."""
        await self._services.clock.sleep(seconds)


class _CallLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs
