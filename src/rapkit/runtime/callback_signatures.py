"""Require and verify the signatures of callbacks (Standard Webhooks)."""

import logging
from collections.abc import Mapping, Sequence

from rapkit.clock import Clock
from rapkit.delivery.signatures import MESSAGE_ID, SIGNATURE, TIMESTAMP, IncomingSignature, SignatureCheck
from rapkit.errors import ConfigError
from rapkit.http.rate_limit import RateLimit
from rapkit.http.requests import Refusal, retry_later
from rapkit.mailbox import Fact, NewBox, Store
from rapkit.runtime.callback_urls import CallbackTarget, tag_of
from rapkit.runtime.mail_codec import LIVE
from rapkit.runtime.server import Server
from rapkit.runtime.toolsets import THREAD

UNSIGNED = "unsigned"
"""Records of the calls whose callbacks were refused because of their signature, with the reason, by the calls' ids."""

_NAMES = (MESSAGE_ID, TIMESTAMP, SIGNATURE)
_RETRY_WHEN_STALE = 60.0
_RETRY_WHEN_UNREADABLE = 60.0
_NOTED_A_SECOND = 1 / 10

log = logging.getLogger("rapkit.callbacks")


class CallbackSignatures:
    """Verifies the callbacks of the servers that have a `webhook_secret`."""

    def __init__(self, servers: Sequence[Server], store: Store, clock: Clock) -> None:
        self._servers = {tag_of(server.key): server for server in servers if server.signs}
        self._store = store
        self._clock = clock
        self._noted = RateLimit(_NOTED_A_SECOND)

    def signed(self, call: CallbackTarget, headers: Mapping[bytes, bytes]) -> IncomingSignature | None:
        """What a callback's body is to be fed to; None if it need not be signed."""
        server = self._servers.get(call.server)
        if server is None:
            return None
        given = {name: headers.get(name.encode(), b"").decode("latin-1") for name in _NAMES}
        try:
            return IncomingSignature(given, server.webhook_secrets())
        except ConfigError as error:
            log.error("the callbacks of %s cannot be verified: %s", server.key, error)
            raise retry_later("The signature cannot be verified now.", _RETRY_WHEN_UNREADABLE) from None

    async def verify(self, call: CallbackTarget, signed: IncomingSignature) -> None:
        """Return if the callback was signed, a moment ago; else a `Refusal` says why not, and the thread knows of it."""
        check = signed.check(self._clock.now())
        if check is SignatureCheck.STALE:
            # An honest sender signs each attempt anew; a replay by another party is never accepted.
            raise retry_later("Its webhook-timestamp is more than 5 minutes away from our time.", _RETRY_WHEN_STALE)
        if check is SignatureCheck.BAD:
            where = {"thread_id": call.thread_id, "call_id": call.call_id}
            log.warning(
                "a callback was refused with 401: it is not signed with the server's webhook_secret", extra=where
            )
            if not self._noted.wait(f"{call.thread_id}/{call.call_id}"):
                reason = b"A callback was refused (401): it is not signed with the webhook_secret of its server."
                box = NewBox(call.thread_id, THREAD)
                if any(live.key == call.call_id for live in await self._store.records(call.thread_id, LIVE)):
                    await self._store.note(box, Fact(call.thread_id, UNSIGNED, call.call_id, reason))
            raise Refusal(
                401,
                "Sign the body as Standard Webhooks do (webhook-id, webhook-timestamp within 5 minutes, webhook-signature) with the secret "
                "that the agent has for this server.",
            )
