"""Cancel a subscription that its server confirms after the thread was closed.

The server may not know `/close_thread`, and the cancellation may have overtaken the call: it is told once more, and only once, however
often it repeats the confirmation. If the process dies before the notice is committed, the confirmation is not answered either: the
server repeats it, and is told then.
"""

from collections.abc import Callable

from rapkit.kernel.thread import load_thread
from rapkit.mailbox import Store
from rapkit.runtime.dispatch import Dispatch
from rapkit.runtime.mail_codec import REMEMBERED


class LateSubscriptions:
    """Sends the notices; `on_posted` is called with the thread of each that was put into the outbox, now or before."""

    def __init__(self, store: Store, dispatch: Dispatch, on_posted: Callable[[str], None]) -> None:
        self._store = store
        self._dispatch = dispatch
        self._on_posted = on_posted

    async def cancel(self, thread_id: str, call_id: str) -> None:
        """Tell the call's server that the call is cancelled, unless the thread is open, or that was said on this occasion before."""
        box = await self._store.box(thread_id)
        server = None if box is None else load_thread(box.state).cancelled_by_close.get(call_id)
        if server is None:
            return
        notices = self._dispatch.cancelled(thread_id, call_id, server)
        await self._store.post(notices, f"{thread_id}/{call_id}/late", REMEMBERED)
        self._on_posted(
            thread_id
        )  # for a repetition too: the process that posted it may have died before it could say so
