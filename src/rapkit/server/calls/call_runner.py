"""Run invocations: claim them, call their handlers, commit the one result of each."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

from pydantic import ValidationError

from rapkit.delivery.retry import PostKind
from rapkit.errors import Fenced, InvalidMessage, StoreError
from rapkit.mailbox import Claim, Commit
from rapkit.protocol import BadInvocation, Invocation, ToolResult, dump
from rapkit.server.call_log import record_call
from rapkit.server.calls.fairness import Fairness
from rapkit.server.calls.handler_run import HandlerResult, HandlerRun
from rapkit.server.claimed_box import ClaimedBox
from rapkit.server.interaction.questions import QUESTION, RESUMED, take_answers
from rapkit.server.invocation import StoredCall, call_kind
from rapkit.server.metrics import Ended
from rapkit.server.resources.thread_resources import Resources
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.confirmation import confirmation_fact
from rapkit.server.tools.context import Context
from rapkit.server.tools.handler import run_to_output, unexpected_error
from rapkit.server.tools.output import CANCELLED, Output
from rapkit.server.tools.tool import Tool
from rapkit.tracing import Span
from rapkit.work.poller import Poller

_MOST_RUNS = 3
_PUT_OFF_FOR = 3600.0
_PAUSE_AFTER_FAILURE = 0.5

log = logging.getLogger("rapkit.calls")


class ClaimedCall(NamedTuple):
    """A call and the claim of its box."""

    claim: Claim
    call: StoredCall


class Suspended(Exception):
    """The handler is suspended until an answer arrives, and its box is released."""


@dataclass(slots=True)
class RunningCall:
    """A call of a thread at work. `interrupted` says that the runner cancelled its task, and not its handler."""

    thread: str | None
    task: "asyncio.Task[None]"
    context: Context | None = None
    interrupted: bool = False

    def interrupt(self) -> None:
        """Stop it where it stands."""
        self.interrupted = True
        if self.context is not None:
            self.context.cancel()
        self.task.cancel()


class CallRunner:
    """Runs a toolset's calls under one lease, up to `concurrency` at once."""

    def __init__(
        self, services: ToolsetServices, resources: Resources, on_finished: Callable[[str], None] = lambda _caller: None
    ) -> None:
        self._services = services
        self._resources = resources
        self._on_finished = on_finished
        self._store = services.store
        self._tools = services.config.tools
        self._claimed: dict[str, int] = {}
        self._running: dict[str, RunningCall] = {}
        self._draining = False
        limits = services.config.limits
        self._fairness = Fairness(limits.concurrency, limits.of_one_caller(limits.concurrency))
        self._poller = Poller(
            services.store,
            call_kind(services.config.toolset),
            limits.concurrency,
            self._claim,
            self._run,
        )

    async def run(self) -> None:
        """Work until cancelled."""
        await self._poller.run()

    async def drain(self, patience: float) -> None:
        """Let running handlers end; those that do not are interrupted, and dealt with after the next start."""
        self._draining = True
        await self._poller.drain(patience)

    async def accept(self, call: StoredCall) -> bool:
        """Make a call durable; False if it was known already. It is started at once if there is room, else when its turn comes."""
        box = call.to_box()
        if self._fairness.room(call.caller, self._poller.free) <= 0 or not self._poller.reserve():
            return await self._store.create(box)
        self._fairness.take(call.caller)
        claim = None
        try:
            claim = await self._store.create_claimed(box, self._services.worker)
            if claim is not None:
                self._note([claim])
                self._poller.submit(ClaimedCall(claim, call))
        finally:
            self._poller.release()
            if claim is None:
                self._fairness.give_back(call.caller)
        return claim is not None

    @property
    def healthy(self) -> bool:
        """Whether calls can be fetched."""
        return self._poller.healthy

    @property
    def running(self) -> int:
        """How many handlers run."""
        return len(self._running)

    def cancel(self, boxes: tuple[str, ...]) -> None:
        """Interrupt the handlers of these boxes if they run here. The boxes were stopped, so nothing of theirs is committed."""
        for box in boxes:
            self._claimed.pop(box, None)
            if running := self._running.get(box):
                running.interrupt()

    async def quiet(self, thread: str) -> None:
        """Return when no handler runs for a thread here."""
        if tasks := [running.task for running in self._running.values() if running.thread == thread]:
            await asyncio.wait(tasks)

    async def _claim(self, limit: int) -> list[ClaimedCall]:
        config = self._services.config
        quota = self._fairness.quota(self._poller.free)
        claims = await self._store.claim(
            self._services.worker, call_kind(config.toolset), limit, config.limits.mail, quota
        )
        self._note(claims)
        jobs = []
        for claim in claims:
            try:
                jobs.append(ClaimedCall(claim, StoredCall.from_state(self._services.config.toolset, claim.box.state)))
            except (InvalidMessage, ValueError) as error:
                # It was fine when it was accepted, so this version of ours is stricter, or it is damaged. Another version may read it.
                log.error("a stored call cannot be read and is put off for an hour: %s", error)
                await self._put_off_for_long(claim)
        for job in jobs:
            self._fairness.take(job.call.caller)
        return jobs

    async def _put_off_for_long(self, claim: Claim) -> None:
        try:
            await self._store.commit(claim, Commit(again_at=claim.now + _PUT_OFF_FOR, charge=True))
        except StoreError as error:  # the others that were claimed with it are not to suffer from that
            log.error("it could not be put off, and is tried again when our lease ends: %s", error)

    def _note(self, claims: list[Claim]) -> None:
        # At once, because a box can be stopped after it was claimed and before its handler is called; and with the epoch, because it is
        # then claimed again, to be answered.
        self._claimed.update((claim.box.id, claim.epoch) for claim in claims)

    async def _run(self, job: ClaimedCall) -> None:
        try:
            await self._run_claimed(job)
        finally:
            self._fairness.give_back(job.call.caller)

    async def _run_claimed(self, job: ClaimedCall) -> None:
        started = time.monotonic()
        claim = job.claim
        task = asyncio.current_task()
        assert task is not None
        if self._claimed.get(claim.box.id) != claim.epoch:
            return  # it was stopped after we had claimed it, and is claimed again, to be answered
        running = RunningCall(claim.box.parent, task)
        del self._claimed[claim.box.id]
        self._running[claim.box.id] = running  # from here on a cancellation finds it
        try:
            await self._try(job, running, started)
        finally:
            if self._running.get(claim.box.id) is running:  # else it was taken from us and claimed again
                del self._running[claim.box.id]

    async def _try(self, job: ClaimedCall, running: RunningCall, started: float) -> None:
        claim, call = job
        claimed_box = self._services.claimed_box(claim, call.message.callback_url)
        try:
            with self._span(call) as span:
                claimed_box.traceparent = span.traceparent
                try:
                    outcome = await self._conclude(claimed_box, call, running)
                except Fenced as error:
                    log.debug("%s", error)  # it was cancelled, or taken over: the worker that has it now answers it
                    span.ended("cancelled")
                    return
                span.ended(outcome or "ok")
        except asyncio.CancelledError:
            await asyncio.shield(self._give_back(claim, call, running))
            raise
        except StoreError as error:
            log.error("a call cannot be begun: %s", error)
            await self._put_off(claimed_box, charge=claim.attempts > 1)
            return
        except Exception as error:
            log.critical("the server failed on a call, which is tried again", exc_info=error)
            await self._put_off(claimed_box, charge=True)
            return
        self._on_finished(call.caller)
        if outcome is not None:
            record_call(self._services.metrics, call, outcome, time.monotonic() - started)

    async def _conclude(self, claimed_box: ClaimedBox, call: StoredCall, running: RunningCall) -> Ended | None:
        """Run the call and commit how it ends; says how that is. None if its generator, which runs next, decides about the result."""
        try:
            ending = await self._work(claimed_box, call, running)
        except Suspended:
            return "suspended"
        body, ending = self._result(call.message, ending)
        subscription = ending.subscription
        kind = PostKind.CANCELLED if ending.cancelled else PostKind.CALLBACK
        commit = Commit(
            outgoing=ending.before,
            spawn=ending.spawn,
            facts=ending.facts,
            new_mails=ending.new_mails,
            forget_for=self._services.config.durations.remember_calls,
        )
        if subscription is not None and not subscription.confirmed:
            commit = replace(commit, facts=[*ending.facts, confirmation_fact(subscription.box_id, body)])
            return None if await claimed_box.commit_with_retry(commit) else "cancelled"
        lane = None if subscription is None else subscription.box_id
        ours = await claimed_box.commit_with_retry(
            replace(commit, outgoing=[*ending.before, claimed_box.post(body, kind, lane=lane)])
        )
        if not ours or ending.cancelled:
            return "cancelled"
        return "error" if ending.output.failed else "ok"

    def _span(self, call: StoredCall) -> Span:
        message = call.message
        return self._services.tracing.call(
            self._operation(message) or "unknown",
            call.traceparent,
            toolset=call.toolset,
            thread_id=message.group_id,
            call_id=message.id,
        )

    def _operation(self, message: Invocation | BadInvocation) -> str | None:
        """The operation's name, if there is such an operation: an operation that does not exist is no label."""
        return message.operation if isinstance(message, Invocation) and message.operation in self._tools else None

    async def _work(self, claimed_box: ClaimedBox, call: StoredCall, running: RunningCall) -> HandlerResult:
        claim, message = claimed_box.claim, call.message
        untouched = claim.attempts == 1 and not claim.mail and not claim.timers and call.checkpoint is None
        if not untouched or claim.box.stopped:
            await self._services.kill_leftovers(claim.box.id)
        if claim.box.stopped:
            return HandlerResult(Output(CANCELLED, failed=True), cancelled=True)
        if isinstance(message, BadInvocation):
            return HandlerResult(Output(f"Error: {message.problem}", failed=True))
        tool = self._tools.get(message.operation)
        if tool is None:
            known = ", ".join(sorted(self._tools))
            text = f"Error: there is no operation {message.operation!r}. There are: {known}."
            return HandlerResult(Output(text, failed=True))
        if not untouched:
            if (lost := await self._lost(claim, tool, call)) is not None:
                return HandlerResult(Output(lost, failed=True))
            if not await take_answers(self._store, claim):
                raise Fenced(
                    "The call was let go: an answer may have come in the last moment, and comes with the next claim."
                )
        return await self._call(claimed_box, tool, call, message, running)

    async def _lost(self, claim: Claim, tool: Tool, call: StoredCall) -> str | None:
        """What is to be said of a call that was lost before and must not run again, if it must not (semantics 23 and 24)."""
        repeatable = tool.repeatable or call.checkpoint is not None
        if claim.attempts > 1 and not repeatable and not await self._was_waiting(claim.box.id):
            return (
                f"Error: the server was interrupted while {tool.name} ran, and it is not known whether it took effect. "
                "Find out before you call it again."
            )
        runs = claim.attempts - (0 if call.checkpoint is None else call.checkpoint.runs - 1)
        if runs > _MOST_RUNS:
            return f"Error: {tool.name} was interrupted {_MOST_RUNS} times and given up. Tell the user."
        return None

    async def _was_waiting(self, box: str) -> bool:
        """Whether the handler was lost before it got past its last question: up to there it must bear to be repeated."""
        return bool(await self._store.records(box, QUESTION)) and not await self._store.records(box, RESUMED)

    async def _call(
        self, claimed_box: ClaimedBox, tool: Tool, call: StoredCall, message: Invocation, running: RunningCall
    ) -> HandlerResult:
        task = running.task
        handler_run = HandlerRun(self._services, self._resources, claimed_box, tool, call, task)
        needs_context = tool.signature.context_parameter or tool.subscription or self._services.config.hooks
        context = running.context = await handler_run.context() if needs_context else None
        try:
            output = await run_to_output(
                tool, message, context, self._services.clock, partial(handler_run.handle, message, context)
            )
            return handler_run.ending(output)
        except asyncio.CancelledError:
            if context is not None and not handler_run.suspended:
                context.cancel()
            if handler_run.suspended and task.uncancel() == 0:
                raise Suspended from None
            if handler_run.suspended or handler_run.lost or running.interrupted or self._draining:
                raise
            # Not by the server: the handler has cancelled its own task. That is a failure like any other.
            while task.uncancel():
                pass
            return HandlerResult(unexpected_error(message, asyncio.CancelledError("the handler has cancelled itself")))
        finally:
            await handler_run.close()

    def _result(self, message: Invocation | BadInvocation, ending: HandlerResult) -> tuple[bytes, HandlerResult]:
        """The message that carries the result, and how the call ends: another way, if no message can carry it."""
        largest = self._services.config.limits.result
        try:
            body = dump(_tool_result(message, ending))
        except ValidationError as error:  # such as a picture of no kind
            assert isinstance(message, Invocation)
            return self._failed(message, ending, unexpected_error(message, error))
        if len(body) <= largest:
            return body, ending
        told = f"Error: the result has {len(body):,} bytes, and {largest:,} can be sent. Ask for less."
        return self._failed(message, ending, Output(told, failed=True))

    def _failed(
        self, message: Invocation | BadInvocation, ending: HandlerResult, output: Output
    ) -> tuple[bytes, HandlerResult]:
        failed = HandlerResult(output) if ending.subscription else replace(ending, output=output)
        return dump(_tool_result(message, failed)), failed

    async def _put_off(self, claimed_box: ClaimedBox, *, charge: bool) -> None:
        """Leave the call to the next claim, with what is on its account if that is `charged`."""
        await asyncio.sleep(_PAUSE_AFTER_FAILURE)
        await claimed_box.commit_with_retry(Commit(again_at=claimed_box.claim.now, charge=charge))

    async def _give_back(self, claim: Claim, call: StoredCall, running: RunningCall) -> None:
        """The handler was interrupted: leave the call to the next worker, charged with a lost run if running it twice could do harm."""
        message = call.message
        tool = self._tools.get(message.operation) if isinstance(message, Invocation) else None
        checkpointed = running.context is not None and running.context.cursor is not None
        try:
            harmless = tool is None or tool.repeatable or checkpointed or await self._was_waiting(claim.box.id)
            await self._store.commit(claim, Commit(again_at=claim.now, charge=not harmless))
        except Fenced as error:
            log.debug("%s", error)  # it was cancelled, or taken over
        except StoreError as error:
            # The call is still charged with the run, and free when our lease ends. Insisting would keep the server from stopping.
            log.error("cannot give a call back: %s", error)


def _tool_result(message: Invocation | BadInvocation, ending: HandlerResult) -> ToolResult:
    output = ending.output
    return ToolResult.model_validate(
        {
            "group_id": message.group_id,
            "id": message.id,
            "call_id": message.call_id,
            "text": output.text,
            "content": output.content,
            "display_as": output.display_as,
            "subscription": ending.subscription is not None,
        }
    )
