"""Runs invocations: claims them, calls their handlers, commits the one result each of them ends in."""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from pydantic import ValidationError

from rapkit.delivery.courier import Courier
from rapkit.delivery.retry import Kind
from rapkit.errors import Fenced, InvalidMessage, StoreError, ToolError
from rapkit.ids import new_id
from rapkit.mailbox import Claim, Commit, Outgoing, Store, Taken
from rapkit.protocol import BadInvocation, Invocation, ToolResult, dump
from rapkit.pump import Pump
from rapkit.server.context import Context
from rapkit.server.invocation import Call, call_kind
from rapkit.server.output import BadResult, Output, error_text, to_output
from rapkit.server.threads import Threads
from rapkit.server.tool import Tool

_MOST_RUNS = 3
_PUT_OFF_FOR = 3600.0
_PAUSE_BEFORE_COMMITTING_AGAIN = 0.5
_CANCELLED = "Error: Cancelled."

log = logging.getLogger("rapkit.calls")


class Job(NamedTuple):
    """A call and our claim of it."""

    claim: Claim
    call: Call


class Worker:
    """Runs a toolset's calls under one lease, up to `concurrency` at once."""

    def __init__(
        self,
        store: Store,
        courier: Courier,
        toolset: str,
        tools: Mapping[str, Tool],
        id: str,
        *,
        concurrency: int,
        remember_for: float,
        largest_result: int,
        origin_of: Callable[[str], str],
        on_finished: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._courier = courier
        self._toolset = toolset
        self._kind = call_kind(toolset)
        self._tools = tools
        self._id = id
        self._remember_for = remember_for
        self._largest_result = largest_result
        self._origin_of = origin_of
        self._on_finished = on_finished
        self._threads = Threads()
        self._claimed: dict[str, int] = {}
        self._contexts: dict[str, tuple[Context, asyncio.Task[None]]] = {}
        self._pump = Pump(store, self._kind, concurrency, self._claim, self._run)

    async def run(self) -> None:
        """Work until cancelled."""
        await self._pump.run()

    async def drain(self, patience: float) -> None:
        """Let running handlers end; those that do not are interrupted, and dealt with after the next start."""
        await self._pump.drain(patience)
        self._threads.close()

    async def accept(self, call: Call) -> bool:
        """Make a call durable; False if it was known already. It is started at once if there is room, else when its turn comes."""
        box = call.to_box()
        if not self._pump.reserve():
            return await self._store.create(box)
        try:
            claim = await self._store.create_claimed(box, self._id)
            if claim is not None:
                self._note([claim])
                self._pump.hand(Job(claim, call))
        finally:
            self._pump.release()
        return claim is not None

    @property
    def healthy(self) -> bool:
        """Whether calls can be fetched."""
        return self._pump.healthy

    def cancel(self, boxes: tuple[str, ...]) -> None:
        """Interrupt the handlers of these boxes if they run here. The boxes were stopped, so nothing of theirs is committed."""
        for box in boxes:
            self._claimed.pop(box, None)
            if running := self._contexts.get(box):
                context, task = running
                context.cancel()
                task.cancel()

    async def _claim(self, limit: int) -> list[Job]:
        claims = await self._store.claim(self._id, self._kind, limit)
        self._note(claims)
        jobs = []
        for claim in claims:
            try:
                jobs.append(Job(claim, Call.from_state(self._toolset, claim.box.state)))
            except (InvalidMessage, UnicodeDecodeError) as error:
                # It was fine when it was accepted, so this version of ours is stricter, or it is damaged. Another version may read it.
                log.error("a stored call cannot be read and is put off for an hour: %s", error)
                await self._commit(claim, Commit(again_at=claim.now + _PUT_OFF_FOR))
        return jobs

    def _note(self, claims: list[Claim]) -> None:
        # At once, because a box can be stopped after it was claimed and before its handler is called; and with the epoch, because it is
        # then claimed again, to be answered.
        self._claimed.update((claim.box.id, claim.epoch) for claim in claims)

    async def _run(self, job: Job) -> None:
        started = time.monotonic()
        claim, call = job
        message = call.message
        try:
            output = await self._answer(claim, message)
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(claim, message))
            raise
        body = self._result(message, output)
        await self._finish(claim, body, message.callback_url)
        self._on_finished()
        if not log.isEnabledFor(logging.INFO):
            return
        log.info(
            "call finished",
            extra={
                "operation": _operation(message),
                "thread_id": message.group_id,
                "call_id": message.id,
                "caller": call.caller,
                "outcome": "error" if output.text.startswith("Error: ") else "ok",
                "seconds": round(time.monotonic() - started, 4),
            },
        )

    async def _answer(self, claim: Claim, message: Invocation | BadInvocation) -> Output:
        wanted = self._claimed.get(claim.box.id) == claim.epoch
        if wanted:
            del self._claimed[claim.box.id]
        if claim.box.stopped or not wanted:
            return Output(_CANCELLED)
        if isinstance(message, BadInvocation):
            return Output(f"Error: {message.problem}")
        tool = self._tools.get(message.operation)
        if tool is None:
            known = ", ".join(sorted(self._tools))
            return Output(f"Error: there is no operation {message.operation!r}. There are: {known}.")
        if claim.attempts > 1 and not tool.repeatable:
            return Output(
                f"Error: the server was interrupted while {tool.name} ran, and it is not known whether it took effect. "
                "Find out before you call it again."
            )
        if claim.attempts > _MOST_RUNS:
            return Output(f"Error: {tool.name} was interrupted {_MOST_RUNS} times and given up. Tell the user.")
        return await self._call(claim, tool, message)

    async def _call(self, claim: Claim, tool: Tool, message: Invocation) -> Output:
        context = Context(message, tool.name)
        task = asyncio.current_task()
        assert task is not None
        running = self._contexts[claim.box.id] = (context, task)
        try:
            async with asyncio.timeout(tool.traits.timeout) as limit:
                return to_output(await self._invoke(tool, message, context))
        except asyncio.CancelledError:
            context.cancel()
            if task.cancelling():
                raise
            # Nobody cancelled us: the handler let out a cancellation of something of its own.
            return self._unexpected(message, asyncio.CancelledError("the handler let it out"))
        except BadResult as error:
            log.warning("%s", error, exc_info=error, extra={"operation": tool.name, "call_id": message.id})
            return Output(error_text(error, ""))
        except ToolError as error:
            return Output(error_text(error, ""))
        except TimeoutError as error:
            if not limit.expired():
                return self._unexpected(message, error)
            context.cancel()
            return Output(_out_of_time(tool))
        except GeneratorExit:
            raise  # not the handler's: the event loop is gone, and nothing can be awaited any more
        except BaseException as error:  # noqa: BLE001 - authors raise anything; the model gets a masked text, the log the whole
            # SystemExit too: it comes from libraries written for the command line, and would end the server with all other calls.
            return self._unexpected(message, error)
        finally:
            if self._contexts.get(claim.box.id) is running:  # else it was taken from us and claimed again
                del self._contexts[claim.box.id]

    async def _invoke(self, tool: Tool, message: Invocation, context: Context) -> object:
        signature = tool.signature
        arguments = signature.bind(message.arguments)
        if signature.context_parameter:
            arguments[signature.context_parameter] = context
        if signature.is_async:
            return await signature.function(**arguments)
        return await self._threads.run(partial(signature.function, **arguments))

    def _unexpected(self, message: Invocation | BadInvocation, error: BaseException) -> Output:
        reference = secrets.token_hex(4)
        log.error(
            "the handler failed (reference %s)",
            reference,
            exc_info=error,
            extra={
                "operation": _operation(message),
                "thread_id": message.group_id,
                "call_id": message.id,
                "reference": reference,
            },
        )
        return Output(error_text(error, reference))

    def _result(self, message: Invocation | BadInvocation, output: Output) -> bytes:
        try:
            body = dump(_tool_result(message, output))
        except ValidationError as error:  # such as a picture of no kind
            return dump(_tool_result(message, self._unexpected(message, error)))
        if len(body) <= self._largest_result:
            return body
        told = f"Error: the result has {len(body):,} bytes, and {self._largest_result:,} can be sent. Ask for less."
        return dump(_tool_result(message, Output(told)))

    async def _finish(self, claim: Claim, body: bytes, callback_url: str) -> None:
        outgoing = Outgoing(
            id=new_id("msg"),
            lane=claim.box.id,
            kind=Kind.CALLBACK,
            origin=self._origin_of(callback_url),
            url=callback_url,
            body=body,
        )
        commit = Commit(outgoing=(outgoing,), forget_for=self._remember_for)
        while True:
            try:
                with self._courier.place_for(outgoing.origin) as sender:
                    return self._courier.hand(await self._commit(claim, commit, sender))
            except StoreError as error:
                # The work is done; giving up here would have it done again, or reported as lost.
                log.error("cannot commit a result: %s", error)
                await asyncio.sleep(_PAUSE_BEFORE_COMMITTING_AGAIN)

    async def _give_back(self, claim: Claim, message: Invocation | BadInvocation) -> None:
        """The handler was interrupted: leave the call to the next worker, charged with a lost run if running it twice could do harm."""
        tool = self._tools.get(message.operation) if isinstance(message, Invocation) else None
        harmless = tool is None or tool.repeatable
        try:
            await self._commit(claim, Commit(again_at=claim.now, charge=not harmless))
        except StoreError as error:
            # The call is still charged with the run, and free when our lease ends. Insisting would keep the server from stopping.
            log.error("cannot give a call back: %s", error)

    async def _commit(self, claim: Claim, commit: Commit, sender: str | None = None) -> list[Taken]:
        try:
            return await self._store.commit(claim, commit, sender)
        except Fenced as error:
            # It was cancelled, or taken over: whoever has it now gives its result.
            log.debug("%s", error)
            return []


def _tool_result(message: Invocation | BadInvocation, output: Output) -> ToolResult:
    return ToolResult.model_validate(
        {
            "group_id": message.group_id,
            "id": message.id,
            "call_id": message.call_id,
            "text": output.text,
            "content": output.content,
            "display_as": output.display_as,
        }
    )


def _out_of_time(tool: Tool) -> str:
    late = f"Error: {tool.name} did not finish within {tool.traits.timeout:g} s"
    if tool.signature.is_async:
        return f"{late} and was stopped."
    return f"{late}. It cannot be stopped and may still take effect. Find out before you call it again."


def _operation(message: Invocation | BadInvocation) -> str | None:
    return message.operation if isinstance(message, Invocation) else None
