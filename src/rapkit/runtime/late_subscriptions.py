"""Cancels a subscription that its server confirms after the thread was closed.

The server may not know `/close_thread`, and the cancellation may have overtaken the call: it is told once more, and only once, however
often it repeats the confirmation. The notice is best effort, as every notice is: if the process dies between the
two commits, it is not sent.
"""

from collections.abc import Callable

from rapkit.ids import new_id
from rapkit.kernel.thread import load_thread
from rapkit.mailbox import Commit, NewBox, Store
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.letters import REMEMBERED

_KIND = "late_subscription"


class LateSubscriptions:
    """Sends the notices; `on_posted` is called with the thread of each that was put into the outbox."""

    def __init__(self, store: Store, dispatch: Dispatch, on_posted: Callable[[str], None]) -> None:
        self._store = store
        self._dispatch = dispatch
        self._on_posted = on_posted
        self._worker = new_id("late")

    async def cancel(self, thread_id: str, call_id: str) -> None:
        """Tell the call's server that the call is cancelled, unless the thread is open, or that was said on this occasion before."""
        box = await self._store.box(thread_id)
        server = None if box is None else load_thread(box.state).cancelled_by_close.get(call_id)
        if server is None:
            return
        await self._store.renew(self._worker)
        # The box lasts as long as it takes to commit the notice. Its id is remembered, which is what makes it one notice.
        claim = await self._store.create_claimed(NewBox(f"{thread_id}/{call_id}/late", _KIND), self._worker)
        if claim is not None:
            notices = self._dispatch.cancelled(thread_id, call_id, server)
            await self._store.commit(claim, Commit(outgoing=notices, forget_for=REMEMBERED))
            self._on_posted(thread_id)
