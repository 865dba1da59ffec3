"""A claimed box: commits under the claim, and the POSTs that leave with them."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from rapkit.delivery.outbox_sender import OutboxSender
from rapkit.delivery.retry import PostKind
from rapkit.errors import Fenced
from rapkit.ids import new_id
from rapkit.mailbox import Claim, Commit, Outgoing, Store, lane_under
from rapkit.server.invocation import digest
from rapkit.work.store_retry import retry_store_operation

log = logging.getLogger("rapkit.calls")


class ClaimedBox:
    """A claim of a box whose POSTs all go to one callback URL, in order."""

    def __init__(
        self,
        store: Store,
        outbox_sender: OutboxSender,
        claim: Claim,
        callback_url: str,
        origin_of: Callable[[str], str],
    ) -> None:
        self.claim = claim
        self.traceparent = ""
        """The trace that what we send from now on belongs to."""
        self._store = store
        self._outbox_sender = outbox_sender
        self._url = callback_url
        self._origin_of = origin_of
        self._origin: str | None = None

    @property
    def lane(self) -> str:
        """The lane of our POSTs."""
        return self.claim.box.id

    def post(
        self,
        body: bytes,
        kind: PostKind = PostKind.CALLBACK,
        *,
        lane: str | None = None,
        not_before: float | None = None,
        reference: str = "",
    ) -> Outgoing:
        """A POST to the callback URL, to be part of a commit."""
        return Outgoing(
            id=new_id("msg"),
            lane=lane or self.lane,
            kind=kind,
            origin=self._where(),
            url=self._url,
            body=body,
            not_before=not_before,
            traceparent=self.traceparent,
            reference=reference,
        )

    def view_post(self, body: bytes, view_type: str) -> Outgoing:
        """A POST that shows a view, in a lane of its own: it neither waits for results and questions nor holds them up."""
        outgoing = self.post(body, PostKind.VIEW, lane=lane_under(self.claim.box, digest("v", view_type)))
        return replace(outgoing, latest=True)

    async def commit(self, commit: Commit) -> None:
        """Write it; `Fenced` if the box is no longer ours. After another `StoreError` it is open whether it was written."""
        with self._outbox_sender.reserve_for(commit.outgoing) as sender:
            since = asyncio.get_running_loop().time()
            self._outbox_sender.submit(await self._store.commit(self.claim, commit, sender), since)

    async def commit_with_retry(self, commit: Commit) -> bool:
        """Write it, however often it takes; False if the box was no longer ours. For what can be written twice, or ends the claim."""
        try:
            await retry_store_operation(lambda: self.commit(commit))
        except Fenced as error:
            # It was cancelled, or taken over: the worker that has it now ends it. Or an earlier attempt of this commit was written after
            # all.
            log.debug("%s", error)
            return False
        return True

    def _where(self) -> str:
        if self._origin is None:
            self._origin = self._origin_of(self._url)
        return self._origin
