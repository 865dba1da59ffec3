"""Request a completion from the model: check the budget, build the request, apply the reply, compact if needed."""

import asyncio
import logging
from collections.abc import Coroutine
from functools import lru_cache
from typing import Any

from rapkit.call_ids import call_id_suffix
from rapkit.kernel.budgets import used_up
from rapkit.kernel.builtins import offered_builtins
from rapkit.kernel.catalog import Catalog
from rapkit.kernel.compaction import Cut, compacted, is_due, not_compacted, room_for, shrink_window, summary_question
from rapkit.kernel.completion import Question, Reply, Usage
from rapkit.kernel.effects import Step
from rapkit.kernel.reply import model_failed, out_of_budget, reply
from rapkit.kernel.thread import Thread
from rapkit.models.errors import ModelError
from rapkit.runtime.broadcast import Delta, Reset
from rapkit.runtime.history import JournalView
from rapkit.runtime.instructions import instructions_for
from rapkit.runtime.services import AgentServices

log = logging.getLogger("rapkit.threads")


class Interrupted(BaseException):
    """The completion is not wanted any more."""


class ModelCompletion:
    """One completion for a thread. It can be interrupted, also before it has begun."""

    def __init__(self, services: AgentServices) -> None:
        self._services = services
        self._limits = services.config.limits
        self.began = False
        """Whether the model was asked."""
        self._completing: asyncio.Task[Reply] | None = None
        self._more_urgent = asyncio.Event()

    async def ask(self, thread: Thread, view: JournalView, catalog: Catalog) -> Step:
        """Ask the model, if there is money left for it; for a summary first, if it would be shown too much.

        Raises `Interrupted` if the slice is interrupted.
        """
        clock, limits = self._services.clock, self._limits
        if reason := used_up(thread, limits):
            return out_of_budget(thread, reason, None, clock.now(), limits)
        budget_usage = self._services.budget_usage
        if budget_usage is not None and (over := await budget_usage.exceeded()) is not None:
            return out_of_budget(thread, over.reason, over.until, clock.now(), limits)
        room = room_for(thread, limits, self._services.config.model.context_window)
        if is_due(thread, limits, room, view.tokens) and (where := view.cut(limits, room)) is not None:
            return await self._compact(thread, view, where, room)
        question = Question(
            instructions_for(self._services.config, thread, catalog, clock.now()),
            view.conversation(limits, room),
            (*offered_builtins(thread, limits), *catalog.tools),
        )
        try:
            said = await self._complete(thread.id, question)
        except ModelError as error:
            self._services.broadcast.publish(thread.id, Reset())
            return self._failed(thread, view, room, error)
        suffix = call_id_suffix(self._services.store.incarnation, thread.id)
        return reply(thread, said, catalog, clock.now(), limits, id_suffix=suffix)

    def _failed(self, thread: Thread, view: JournalView, room: int, error: ModelError) -> Step:
        log.warning("the model failed: %s", error, extra={"thread_id": thread.id})
        now, limits = self._services.clock.now(), self._limits
        if error.too_long and (step := shrink_window(thread, room, view.tokens, now, limits)) is not None:
            return step
        return model_failed(thread, str(error), now, limits, retryable=error.retryable, retry_after=error.retry_after)

    async def _compact(self, thread: Thread, view: JournalView, where: Cut, room: int) -> Step:
        """Have what was said long ago summed up. The thread does not stop if that is not to be had."""
        limits = self._limits
        question = summary_question(view.before(where, limits, room))
        usage = Usage()
        try:
            said = await self._complete(thread.id, question)
            if said.text.strip():
                return compacted(thread, said, where, self._services.clock.now(), limits)
            problem, usage = "the model wrote nothing", said.usage
        except ModelError as error:
            now = self._services.clock.now()
            if error.too_long and (step := shrink_window(thread, room, view.tokens, now, limits)) is not None:
                return step
            if error.retryable and thread.failures + 1 < limits.attempts:
                return self._failed(thread, view, room, error)
            problem, usage = str(error), Usage(requests=1)
        log.warning("no summary could be made: %s", problem, extra={"thread_id": thread.id})
        return not_compacted(thread, problem, usage, self._services.clock.now(), limits)

    async def _complete(self, thread_id: str, question: Question) -> Reply:
        services = self._services
        patience = services.config.patience.completion

        def tell(text: str) -> None:
            if not question.for_summary:  # which no client has asked for
                services.broadcast.publish(thread_id, Delta(text))

        model = services.config.model
        taken = Usage(requests=1)  # at least: the usage of an interrupted completion is unknown
        with services.metrics.completion() as outcome, services.tracing.completion(model.name, thread_id) as span:
            try:
                self.began = True
                async with services.clock.timeout(patience):
                    said = await self._interruptible(model.complete(question, tell))
                taken = said.usage
            except TimeoutError:
                raise ModelError(f"The model did not answer within {patience:g} s.", retryable=True) from None
            finally:
                if services.budget_usage is not None:
                    services.budget_usage.add(taken)
            outcome.said(said)
            span.used(taken.input_tokens, taken.output_tokens, taken.cost)
        if self._limits_cost and not taken.cost and taken.input_tokens:
            _warn_of_unknown_price(model.name)
        return said

    @property
    def _limits_cost(self) -> bool:
        budget = self._services.config.budget
        return self._limits.cost is not None or (budget is not None and budget.cost is not None)

    async def _interruptible(self, completing: Coroutine[Any, Any, Reply]) -> Reply:
        """The reply of a completion, unless something more urgent interrupts it."""
        if self._more_urgent.is_set():
            completing.close()
            raise Interrupted
        self._completing = asyncio.create_task(completing)
        try:
            return await self._completing
        except asyncio.CancelledError:
            if self._more_urgent.is_set() and self._completing.cancelled():
                raise Interrupted from None
            raise
        finally:
            self._completing.cancel()
            self._completing = None

    def interrupt(self) -> None:
        """Let the model be: the thread is to see its mail first."""
        self._more_urgent.set()
        if self._completing is not None:
            self._completing.cancel()


@lru_cache(maxsize=16)  # so that it is said once
def _warn_of_unknown_price(model: str) -> None:
    log.warning("the price of %s is not known: a budget of costs does not bound it. Limit tokens or slices.", model)
