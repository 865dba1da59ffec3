"""Topics: deliver an emitted payload to everything that is subscribed by then.

A topic is a box, with its subscribers as records beside it. Subscribing, unsubscribing and emitting are mail to it, so that there is one
order for all three: what was emitted before a subscription does not reach it. The box stays when the last subscriber is gone: the
next one may be on the way.
"""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pydantic_core import to_json

from rapkit.errors import Fenced
from rapkit.mailbox import Claim, Commit, Mail, NewBox, NewMail, Record
from rapkit.server.invocation import digest, topic_kind
from rapkit.server.services import ToolsetServices
from rapkit.work.poller import Poller

EVENT = "event"
"""The kind of mail that delivers a topic's payload to a subscription."""

_SUBSCRIBE = "subscribe"
_UNSUBSCRIBE = "unsubscribe"
_EMIT = "emit"
_SUBSCRIBER = "subscriber"
_AT_ONCE = 16
_MOST_MAILS = 500
_PAUSE_AFTER_FAILURE = 1.0

log = logging.getLogger("rapkit.subscriptions")


def topic_box(toolset: str, topic: str) -> NewBox:
    """The box of a topic."""
    return NewBox(id=digest("p", toolset, topic), kind=topic_kind(toolset))


def subscribe_mail(toolset: str, topic: str, subscription: str) -> tuple[NewBox, NewMail]:
    """What a commit that subscribes a box to a topic has to make and send."""
    box = topic_box(toolset, topic)
    return box, NewMail(box.id, _SUBSCRIBE, subscription.encode())


def unsubscribe_mail(toolset: str, topic: str | None, subscription: str) -> list[NewMail]:
    """What a commit that ends a subscription has to send."""
    return [] if topic is None else [NewMail(topic_box(toolset, topic).id, _UNSUBSCRIBE, subscription.encode())]


class Topics:
    """The topics of a toolset."""

    def __init__(self, services: ToolsetServices) -> None:
        self._services = services
        self._store = services.store
        self._toolset = services.config.toolset
        self._kind = topic_kind(self._toolset)
        self._poller = Poller(services.store, self._kind, _AT_ONCE, self._claim, self._run)

    async def emit(self, topic: str, payload: object, id: str | None = None) -> None:
        """Make it durable that something happened; the same `id` again, within `remember_events` seconds, is the same thing.

        `ValueError` if the payload is not JSON, or too large.
        """
        body = to_json(payload, inf_nan_mode="null")
        largest = self._services.config.limits.body
        if len(body) > largest:
            raise ValueError(
                f"The payload has {len(body):,} bytes, and {largest:,} are taken. Emit what matters of it."
            )
        self._look_at(topic)
        remember_for = self._services.config.durations.remember_events
        # If there is no such box, nothing has ever subscribed, and there is nothing to deliver to.
        await self._store.accept(
            NewMail(topic_box(self._toolset, topic).id, _EMIT, body, id, remember_for=remember_for)
        )

    def _look_at(self, topic: str) -> None:
        """Warn if no subscription can have this topic. No error, because it may come from what a source has sent."""
        patterns = [
            pattern
            for tool in self._services.config.tools.values()
            if tool.subscription is not None and (pattern := tool.subscription.pattern) is not None
        ]
        if not any(pattern.fits(topic) for pattern in patterns):
            known = ", ".join(sorted({repr(pattern.text) for pattern in patterns})) or "none"
            log.warning("nobody can be subscribed to the topic %.200r; topics of %s: %s", topic, self._toolset, known)

    async def run(self) -> None:
        """Pass on what is emitted, until cancelled."""
        await self._poller.run()

    async def drain(self, patience: float) -> None:
        """Let what was begun end."""
        await self._poller.drain(patience)

    @property
    def healthy(self) -> bool:
        """Whether topics can be fetched."""
        return self._poller.healthy

    async def _claim(self, limit: int) -> list[Claim]:
        return await self._store.claim(self._services.worker, self._kind, limit, self._services.config.limits.mail)

    async def _run(self, claim: Claim) -> None:
        try:
            await self._handle(claim)
        except Fenced as error:
            log.debug("%s", error)  # the worker that has it now goes on
        except Exception as error:
            log.error("cannot pass events of a topic on, and try again: %s", error, exc_info=error)
            await self._services.clock.sleep(_PAUSE_AFTER_FAILURE)
            await self._services.claimed_box(claim, "").commit_with_retry(Commit(again_at=self._services.clock.now()))

    async def _handle(self, claim: Claim) -> None:
        """Pass the mail on in parts, because much mail to many subscribers would delay everything else for long."""
        subscribers = {record.key for record in await self._store.records(claim.box.id, _SUBSCRIBER)}
        done = _Progress.read(claim.box.state)
        mail = list(claim.mail)
        while mail:
            if mail[0].kind == _EMIT and len(subscribers) > _MOST_MAILS:
                await self._pass_on_in_parts(claim, mail.pop(0), subscribers, done, keep=bool(mail))
                continue
            most = max(1, _MOST_MAILS // max(1, len(subscribers)))
            part, mail = mail[:most], mail[most:]
            await self._store.commit(claim, replace(_passed_on(part, subscribers), keep=bool(mail)))
        if not claim.mail:
            await self._store.commit(claim, Commit())

    async def _pass_on_in_parts(
        self, claim: Claim, emitted: Mail, subscribers: set[str], done: "_Progress", *, keep: bool
    ) -> None:
        """One event for very many. How far it got is committed with each part, so that no subscriber gets it twice after a crash."""
        after = done.after if done.seq == emitted.seq else ""
        rest = sorted(subscriber for subscriber in subscribers if subscriber > after)
        while rest:
            part, rest = rest[:_MOST_MAILS], rest[_MOST_MAILS:]
            new_mails = [NewMail(subscriber, EVENT, emitted.body) for subscriber in part]
            progress = _Progress(emitted.seq, part[-1]).to_bytes()
            await self._store.commit(claim, Commit(new_mails=new_mails, state=progress, keep=True))
        await self._store.commit(claim, Commit(consumed=[emitted.seq], state=b"", keep=keep))


@dataclass(frozen=True, slots=True)
class _Progress:
    """Up to which subscriber the event of one mail was passed on."""

    seq: int = 0
    after: str = ""

    def to_bytes(self) -> bytes:
        return json.dumps([self.seq, self.after]).encode()

    @classmethod
    def read(cls, state: bytes) -> "_Progress":
        return cls(*json.loads(state)) if state else cls()


def _passed_on(mail: Sequence[Mail], subscribers: set[str]) -> Commit:
    """What follows from the mail, item by item. `subscribers` is changed with them."""
    changed: dict[str, bool] = {}
    new_mails: list[NewMail] = []
    for each in mail:
        if each.kind == _EMIT:
            new_mails += [NewMail(subscriber, EVENT, each.body) for subscriber in sorted(subscribers)]
            continue
        subscriber = each.body.decode()
        changed[subscriber] = each.kind == _SUBSCRIBE
        if changed[subscriber]:
            subscribers.add(subscriber)
        else:
            subscribers.discard(subscriber)
    return Commit(
        consumed=[each.seq for each in mail],
        put=[Record(_SUBSCRIBER, subscriber) for subscriber, here in changed.items() if here],
        drop=[(_SUBSCRIBER, subscriber) for subscriber, here in changed.items() if not here],
        new_mails=new_mails,
    )
