"""Call an author's function: within its timeout and its hooks, and without exposing internals to the model."""

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from rapkit.clock import Clock
from rapkit.errors import Fenced, ToolError
from rapkit.protocol import Invocation
from rapkit.server.thread_pool import ThreadPool
from rapkit.server.tools.context import Context
from rapkit.server.tools.output import BadResult, Output, error_text, to_output
from rapkit.server.tools.signature import Signature
from rapkit.server.tools.tool import Tool

log = logging.getLogger("rapkit.calls")


def bind_arguments(signature: Signature, message: Invocation, context: Context | None) -> dict[str, Any]:
    """The function's arguments, checked; `BadArguments` if they do not fit."""
    arguments = signature.bind(message.arguments)
    if signature.context_parameter:
        arguments[signature.context_parameter] = context
    return arguments


async def call_function(signature: Signature, arguments: dict[str, Any], thread_pool: ThreadPool) -> Any:
    """What the function returns; a plain function is called in a thread."""
    if signature.is_async:
        return await signature.function(**arguments)
    return await thread_pool.run(partial(signature.function, **arguments))


async def run_to_output(
    tool: Tool, message: Invocation, context: Context | None, clock: Clock, work: Callable[[], Awaitable[Any]]
) -> Output:
    """What the work returns, or how it failed, as the parts of a result. Cancellation and `Fenced` pass through: they end the claim."""
    task = asyncio.current_task()
    assert task is not None
    limit = clock.timeout(tool.traits.timeout)
    try:
        async with limit:
            return to_output(await work())
    except asyncio.CancelledError:
        if task.cancelling():
            raise
        # The server did not cancel it: the handler let out a cancellation of something of its own.
        return unexpected_error(message, asyncio.CancelledError("the handler let it out"))
    except Fenced:
        raise
    except BadResult as error:
        log.warning("%s", error, exc_info=error, extra={"operation": tool.name, "call_id": message.id})
        return Output(error_text(error, ""), failed=True)
    except ToolError as error:
        return Output(error_text(error, ""), failed=True)
    except TimeoutError as error:
        if not limit.expired():
            return unexpected_error(message, error)
        if context is not None:
            context.cancel()
        return Output(_out_of_time(tool), failed=True)
    except GeneratorExit as error:
        if not _loop_runs():
            raise  # not the handler's: the event loop is gone, and nothing can be awaited any more
        return unexpected_error(message, error)
    except BaseException as error:  # noqa: BLE001 - authors raise anything; the model gets a masked text, the log the whole
        # SystemExit too: it comes from libraries written for the command line, and would end the server with all other calls.
        return unexpected_error(message, error)


def unexpected_error(message: Invocation, error: BaseException) -> Output:
    """What the model is told of an unexpected exception. The log has the rest."""
    reference = secrets.token_hex(4)
    log.error(
        "the handler failed (reference %s)",
        reference,
        exc_info=error,
        extra={
            "operation": message.operation,
            "thread_id": message.group_id,
            "call_id": message.id,
            "reference": reference,
        },
    )
    return Output(error_text(error, reference), failed=True)


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _out_of_time(tool: Tool) -> str:
    late = f"Error: {tool.name} did not finish within {tool.traits.timeout:g} s"
    if tool.signature.is_async:
        return f"{late} and was stopped."
    return f"{late}. It cannot be stopped and may still take effect. Find out before you call it again."
