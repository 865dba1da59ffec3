"""What a subscription's function works with while it runs."""

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
    """A context and what stands behind it. A function that takes no context is given an empty place."""

    def __init__(self) -> None:
        self.context: Context | None = None
        self._space: ThreadResources | None = None
        self._views: Views | None = None
        self._processes: Processes | None = None

    @classmethod
    async def open(
        cls,
        premises: ToolsetServices,
        resources: Resources,
        hold: ClaimedBox,
        tool: Tool,
        standing: SubscriptionState,
        checkpoint: Callable[[str, Self], Awaitable[None]],
        people: Interaction | None = None,
    ) -> Self:
        """The place for one run of a function under a hold. Without `people` nobody can be asked."""
        place = cls()
        if tool.signature.context_parameter is None:
            return place
        call = standing.call
        place._space = resources.space(call)
        await place._space.load()
        place._views = Views(hold, premises.clock, call.message.group_id, premises.plan.limits.result)
        place._processes = premises.processes(hold)
        means = ContextServices(
            premises.clock,
            place._views,
            place._space,
            place._processes,
            people or StoredConsent(premises, call),
            lambda cursor: checkpoint(cursor, place),
        )
        place.context = Context(call, tool.name, means, standing.cursor, is_async=tool.signature.is_async)
        return place

    def changes(self) -> Commit:
        """What the function has changed in its thread's state since we last asked, as part of a commit. Raises what `State` does."""
        if self._space is None:
            return Commit()
        changes = self._space.changes(kept=True)
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
