"""The context of a subscription's function while it runs."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Self

from rapkit.mailbox import Commit, Outgoing
from rapkit.server.claimed_box import ClaimedBox
from rapkit.server.interaction.user_interaction import StoredConsent
from rapkit.server.resources.thread_resources import Resources, ThreadResources
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.subscription_state import SubscriptionState
from rapkit.server.tools.context import Context, ContextServices, Interaction
from rapkit.server.tools.tool import Tool
from rapkit.server.views import Views

if TYPE_CHECKING:
    from rapkit.server.processes import Processes


class SubscriptionContext:
    """A context, and the resources behind it. A function that takes no context gets an empty one."""

    def __init__(self) -> None:
        self.context: Context | None = None
        self._thread_resources: ThreadResources | None = None
        self._views: Views | None = None
        self._processes: Processes | None = None

    @classmethod
    async def open(
        cls,
        services: ToolsetServices,
        resources: Resources,
        claimed_box: ClaimedBox,
        tool: Tool,
        sub_state: SubscriptionState,
        checkpoint: Callable[[str, Self], Awaitable[None]],
        interaction: Interaction | None = None,
    ) -> Self:
        """Open the context of one run of a function on a claimed box. Without `interaction` the function cannot ask the user."""
        opened = cls()
        if tool.signature.context_parameter is None:
            return opened
        call = sub_state.call
        opened._thread_resources = resources.thread_resources(call)
        await opened._thread_resources.load()
        opened._views = Views(claimed_box, services.clock, call.message.group_id, services.config.limits.result)
        opened._processes = services.processes(claimed_box)
        context_services = ContextServices(
            services.clock,
            opened._views,
            opened._thread_resources,
            opened._processes,
            interaction or StoredConsent(services, call),
            lambda cursor: checkpoint(cursor, opened),
        )
        opened.context = Context(call, tool.name, context_services, sub_state.cursor, is_async=tool.signature.is_async)
        return opened

    def changes(self) -> Commit:
        """What the function has changed in its thread's state since we last asked, as part of a commit. Raises what `State` does."""
        if self._thread_resources is None:
            return Commit()
        changes = self._thread_resources.changes(kept=True)
        return Commit(spawn=changes.spawn, facts=changes.facts)

    def take_views(self) -> list[Outgoing]:
        """What is still to be shown, for a commit: it comes before the event."""
        return [] if self._views is None else self._views.take()

    async def close(self) -> None:
        """Leave nothing behind."""
        if self._views is not None:
            await self._views.close()
        if self._processes is not None:
            await self._processes.close()
