"""One run of a handler: its context, its suspension, and the result it leaves."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NoReturn

from rapkit.errors import Fenced, StoreError, ToolError
from rapkit.mailbox import Commit, Fact, NewBox, NewMail, Outgoing
from rapkit.protocol import Invocation
from rapkit.server.claimed_box import ClaimedBox
from rapkit.server.interaction.questions import Questions
from rapkit.server.interaction.user_interaction import UserInteraction
from rapkit.server.invocation import StoredCall
from rapkit.server.resources.thread_resources import Resources
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.confirmation import NewSubscription, new_subscription
from rapkit.server.tools.checkpoint import Checkpoint
from rapkit.server.tools.context import Context, ContextServices
from rapkit.server.tools.handler import bind_arguments, call_function
from rapkit.server.tools.hooks import HookedCall, call_with_hooks
from rapkit.server.tools.output import Output
from rapkit.server.tools.tool import Tool
from rapkit.server.views import Views

log = logging.getLogger("rapkit.calls")


class Suspension:
    """Suspends a handler until an answer arrives: releases the claim, and interrupts the handler.

    It has no reference to the run, so that a finished run is freed at once: a thread is in use as long as its resources are referenced.
    """

    def __init__(self, claimed_box: ClaimedBox, views: Views, task: "asyncio.Task[None]") -> None:
        self.happened = False
        self.lost = False
        self._claimed_box = claimed_box
        self._views = views
        self._task = task

    async def __call__(self, commit: Commit, afterwards: Callable[[], Awaitable[None]] | None) -> NoReturn:
        """Write the commit, with what is still to be shown, do what is to be done after that, and stop. This never returns."""
        # What the state was changed to is not kept: the handler changes it again when it runs again.
        self._check(not self._task.done())
        if await self._claimed_box.commit_with_retry(replace(commit, outgoing=[*self._views.take(), *commit.outgoing])):
            self.happened = True
            await self._do(afterwards)
        else:
            self.lost = True
        self._check(self._task.cancel())
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    def _check(self, running: bool) -> None:
        # A question after the end comes from a task that the handler has left behind, and would never be answered.
        if not running:
            raise RuntimeError("The handler has ended: it is too late to ask.")

    async def _do(self, afterwards: Callable[[], Awaitable[None]] | None) -> None:
        try:
            if afterwards is not None:
                await afterwards()
        except (StoreError, ToolError) as error:
            log.error("a call that waits may have to wait longer: %s", error)


@dataclass(frozen=True, slots=True)
class HandlerResult:
    """The result of a run: the output, the POSTs that precede it, and what is committed with it.

    `subscription` is the one that the call has made, if it has. `cancelled` says that the call was stopped: its text does not, since an
    author may raise `ToolError("Cancelled.")`.
    """

    output: Output
    before: Sequence[Outgoing] = ()
    spawn: Sequence[NewBox] = ()
    facts: Sequence[Fact] = ()
    new_mails: Sequence[NewMail] = ()
    subscription: NewSubscription | None = None
    cancelled: bool = False


class HandlerRun:
    """Runs a handler once, with its context, and collects its result."""

    def __init__(
        self,
        services: ToolsetServices,
        resources: Resources,
        claimed_box: ClaimedBox,
        tool: Tool,
        call: StoredCall,
        task: "asyncio.Task[None]",
    ) -> None:
        self._services = services
        self._claimed_box = claimed_box
        self._tool = tool
        self._call = call
        self._thread_resources = resources.thread_resources(call)
        self._views = Views(claimed_box, services.clock, call.message.group_id, services.config.limits.result)
        self._processes = services.processes(claimed_box)
        self._suspension = Suspension(claimed_box, self._views, task)
        self._subscription: NewSubscription | None = None

    @property
    def suspended(self) -> bool:
        """Whether the handler is suspended, and the claim released."""
        return self._suspension.happened

    @property
    def lost(self) -> bool:
        """Whether the handler was interrupted because the claim was lost."""
        return self._suspension.lost

    @cached_property
    def _interaction(self) -> UserInteraction:
        """The way to people, for handlers that can ask them."""
        services = self._services
        questions = Questions(services.store, self._claimed_box, services.clock, self._suspension)
        return UserInteraction(services, self._claimed_box, self._call, self._tool.name, questions)

    async def context(self) -> Context:
        """The context of the handler."""
        await self._thread_resources.load()
        services = ContextServices(
            self._services.clock,
            self._views,
            self._thread_resources,
            self._processes,
            self._interaction,
            self._store_checkpoint,
        )
        checkpoint = self._call.checkpoint
        cursor = None if checkpoint is None else checkpoint.cursor
        return Context(self._call, self._tool.name, services, cursor, is_async=self._tool.signature.is_async)

    async def _store_checkpoint(self, cursor: str) -> None:
        known = self._call.checkpoint
        if known is None or known.cursor != cursor:  # else there is no progress, and the runs since then still count
            known = Checkpoint(cursor, self._claimed_box.claim.attempts)
        call = replace(self._call, checkpoint=known)
        changes = self._thread_resources.changes(kept=True)
        commit = Commit(state=call.to_state(), spawn=changes.spawn, facts=changes.facts, keep=True, charge=True)
        if not await self._claimed_box.commit_with_retry(commit):
            raise Fenced("The call was cancelled, or taken over.")
        self._call = call

    async def handle(self, message: Invocation, context: Context | None) -> Any:
        """Call the handler, with the hooks around it."""
        arguments = bind_arguments(self._tool.signature, message, context)
        result = await self._with_hooks(arguments, context)
        self._thread_resources.settle()
        return result

    async def _with_hooks(self, arguments: dict[str, Any], context: Context | None) -> Any:
        hooks = self._services.config.hooks
        if not hooks or context is None:
            return await self._handle(arguments)
        seen = {name: value for name, value in arguments.items() if name != self._tool.signature.context_parameter}
        hooked = HookedCall(self._tool.name, self._call.caller, seen, context)
        return await call_with_hooks(hooks, hooked, partial(self._handle, arguments))

    async def _handle(self, arguments: dict[str, Any]) -> Any:
        if self._tool.subscription is None:
            return await call_function(self._tool.signature, arguments, self._services.thread_pool)
        provider = self._tool.traits.requires_auth
        if provider is not None and provider in self._services.oauth.providers:
            # Now, because once the subscription is confirmed its call is answered, and its user cannot be asked any more.
            await self._interaction.oauth(provider, None)
        self._subscription = await new_subscription(self._services, self._tool, self._call)
        return self._subscription.text

    def ending(self, output: Output) -> HandlerResult:
        """How the call ends if the handler has this to say."""
        changes = self._thread_resources.changes(kept=not output.failed)
        views = self._views.take()
        subscription = None if output.failed else self._subscription
        if subscription is None:
            return HandlerResult(output, views, changes.spawn, changes.facts)
        made = subscription.commit
        return HandlerResult(output, views, [*made.spawn, *changes.spawn], changes.facts, made.new_mails, subscription)

    async def close(self) -> None:
        """Leave nothing behind."""
        try:
            await self._views.close()
        finally:
            await self._processes.close()
