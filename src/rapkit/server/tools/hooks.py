"""Hooks around calls: for timing, auditing, policy."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rapkit.server.tools.context import Context


@dataclass(frozen=True, slots=True)
class HookedCall:
    """The call a hook is around: what is called, by whom, with what. Arguments are checked and typed as the handler gets them."""

    operation: str
    caller: str
    arguments: Mapping[str, Any]
    context: Context


Proceed = Callable[[], Awaitable[Any]]
Hook = Callable[[HookedCall, Proceed], Awaitable[Any]]


async def call_with_hooks(hooks: Sequence[Hook], call: HookedCall, handler: Proceed) -> Any:
    """The handler's result with all hooks around it, the first one outermost."""
    if not hooks:
        return await handler()
    first, *rest = hooks
    return await first(call, lambda: call_with_hooks(rest, call, handler))
