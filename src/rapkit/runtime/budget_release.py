"""Resume threads that were parked over budget, once the budget is larger or removed."""

import asyncio
import json
import logging
from dataclasses import asdict
from typing import Final

from rapkit.errors import StoreError
from rapkit.kernel.budgets import used_up
from rapkit.kernel.incoming import Grant
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.thread import load_thread
from rapkit.mailbox import Box, Fact, NewBox, Store
from rapkit.runtime import mail_codec
from rapkit.runtime.budget import Budget
from rapkit.runtime.budget_usage import BudgetUsage
from rapkit.runtime.toolsets import THREAD

_BOX: Final = NewBox("rapkit/reviving", "reviving", idle=True)
_BUDGETS: Final = "budgets"
_PAGE: Final = 50
_PAUSE: Final = 0.25
_AGAIN_AFTER: Final = 5.0

log = logging.getLogger("rapkit.spending")


class BudgetRelease:
    """Resumes parked threads that have something left to spend, if the agent has.

    It looks at some of them at a time, so that neither the store nor the model has to do with all of them at once. When all were looked at
    it writes down what they may spend: where that is unchanged, no process looks again. `worker` is a name that no other process has or
    ever had.
    """

    def __init__(
        self, store: Store, worker: str, budget: Budget | None, limits: ThreadLimits, budget_usage: BudgetUsage | None
    ) -> None:
        self._store = store
        self._worker = worker
        self._limits = limits
        self._budget_usage = budget_usage
        each = {"slices": limits.slices, "tokens": limits.tokens, "cost": limits.cost}
        every = {} if budget is None else asdict(budget)
        is_limited = budget is not None or any(value is not None for value in each.values())
        self._budgets = json.dumps([every, each]).encode() if is_limited else None

    async def run(self) -> None:
        """Look at all parked threads, whatever they could spend before; if the store fails, again from the beginning."""
        while True:
            try:
                await self._revive()
                return
            except StoreError as error:
                log.error("cannot look for threads that may go on, and will try again: %s", error)
                await asyncio.sleep(_AGAIN_AFTER)

    async def run_if_changed(self) -> None:
        """Do so if they may spend something else than when it was last done. Raises `StoreError`."""
        records = await self._store.records(_BOX.id, _BUDGETS)
        if (records[0].body if records else None) != self._budgets:
            await self._revive()

    async def _revive(self) -> None:
        after, revived = "", 0
        while True:
            if self._budget_usage is not None and await self._budget_usage.exceeded() is not None:
                return  # and the rest goes on in the next period, or when there is a larger budget
            page = await self._store.boxes(THREAD, status="parked", after=after, limit=_PAGE)
            for box in page:
                if self._may_go_on(box):
                    going_on = mail_codec.encode_mail(box.id, Grant(), dedup=f"revived/{self._worker}")
                    await self._store.accept(going_on)
                    revived += 1
            if len(page) < _PAGE:
                break
            after = page[-1].id
            await asyncio.sleep(_PAUSE)
        if revived:
            log.info("%d threads go on that were parked because a budget was used up", revived)
        await self._store.note(_BOX, Fact(_BOX.id, _BUDGETS, "", self._budgets))

    def _may_go_on(self, box: Box) -> bool:
        try:
            thread = load_thread(box.state)
        except ValueError:
            return False  # which is said when it runs
        return thread.parked is not None and thread.wants_model and used_up(thread, self._limits) is None
