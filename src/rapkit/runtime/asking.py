"""Asking the model: whether it may be asked, what it is shown, and what follows from what it says."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from rapkit.kernel.budgets import used_up
from rapkit.kernel.builtins import offered
from rapkit.kernel.catalog import Catalog
from rapkit.kernel.compaction import Cut, compacted, is_due, may_be_tried, not_compacted, summary_question
from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.effects import Step
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.replying import model_failed, out_of_budget, reply
from rapkit.kernel.thread import Thread
from rapkit.models.errors import ModelError
from rapkit.runtime.history import View
from rapkit.runtime.hub import Delta, Reset
from rapkit.runtime.instructions import instructions_for
from rapkit.runtime.premises import Premises

log = logging.getLogger("rapkit.threads")


class Interrupted(BaseException):
    """The completion is not wanted any more."""


class Asking:
    """One completion for a thread. It can be interrupted, also before it has begun."""

    def __init__(self, premises: Premises) -> None:
        self._premises = premises
        self._limits = premises.plan.limits
        self._completing: asyncio.Task[Reply] | None = None
        self._more_urgent = asyncio.Event()

    async def ask(self, thread: Thread, view: View, catalog: Catalog) -> Step:
        """Ask the model, if there is money left for it; for a summary first, if it would be shown too much.

        Raises `Interrupted` if somebody wants that.
        """
        clock, limits = self._premises.clock, self._limits
        if reason := used_up(thread, limits):
            return out_of_budget(thread, reason, None, clock.now(), limits)
        spending = self._premises.spending
        if spending is not None and (over := await spending.exceeded()) is not None:
            return out_of_budget(thread, over.reason, over.until, clock.now(), limits)
        if is_due(thread, limits, self._window, view.tokens) and (where := view.cut(limits, self._window)) is not None:
            return await self._compact(thread, view, where, limits)
        question = Question(
            instructions_for(self._premises.plan, thread, clock.now()),
            view.conversation(limits, self._window),
            (*offered(thread, limits), *catalog.tools),
        )
        try:
            said = await self._complete(thread.id, question)
        except ModelError as error:
            self._premises.hub.tell(thread.id, Reset())
            log.warning("the model failed: %s", error, extra={"thread_id": thread.id})
            if error.too_long and may_be_tried(thread, limits):
                # It takes less than we thought. That is half of what it was shown, for all we know.
                less = replace(limits, context_window=max(1, view.tokens // 2))
                if (where := view.cut(less, None)) is not None:
                    return await self._compact(thread, view, where, less)
            return model_failed(
                thread, str(error), clock.now(), limits, retryable=error.retryable, retry_after=error.retry_after
            )
        return reply(thread, said, catalog, clock.now(), limits)

    async def _compact(self, thread: Thread, view: View, where: Cut, limits: ThreadLimits) -> Step:
        """Have what was said long ago summed up."""
        clock = self._premises.clock
        question = summary_question(view.before(where, limits, self._window))
        try:
            said = await self._complete(thread.id, question)
            problem = None if said.text.strip() else "the model wrote nothing"
        except ModelError as error:
            problem = str(error)
        if problem is None:
            return compacted(thread, said, where, clock.now(), limits)
        log.warning("no summary could be made: %s", problem, extra={"thread_id": thread.id})
        return not_compacted(thread, problem, clock.now(), limits)

    @property
    def _window(self) -> int | None:
        """How many tokens the model takes, if that is known."""
        return self._premises.plan.model.context_window

    async def _complete(self, thread_id: str, question: Question) -> Reply:
        premises = self._premises
        patience = premises.plan.patience.completion

        def tell(text: str) -> None:
            if not question.for_summary:  # which nobody has asked for
                premises.hub.tell(thread_id, Delta(text))

        model = premises.plan.model
        with premises.metrics.completion() as outcome, premises.tracing.completion(model.name, thread_id) as span:
            try:
                async with premises.clock.timeout(patience):
                    said = await self._interruptible(model.complete(question, tell))
            except TimeoutError:
                raise ModelError(f"The model did not answer within {patience:g} s.", retryable=True) from None
            outcome.said(said)
            span.used(said.usage.input_tokens, said.usage.output_tokens, said.usage.cost)
        if premises.spending is not None:
            premises.spending.add(said.usage)
        return said

    async def _interruptible(self, completing: Coroutine[Any, Any, Reply]) -> Reply:
        """What a completion gives, unless somebody interrupts it because there is something more urgent."""
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
