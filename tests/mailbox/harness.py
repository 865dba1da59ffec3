"""What a store's own tests give the contract, and the few words the contract is written in."""

from collections.abc import Mapping
from typing import Any, Final, Protocol

from rapkit.mailbox import (
    MAIL_BYTES,
    AcceptResult,
    Claim,
    Commit,
    NewBox,
    NewMail,
    Outcome,
    Outgoing,
    Quota,
    Settlement,
    Store,
    TakenPost,
)

KIND: Final = "job"
ANNA: Final = "anna"
BERT: Final = "bert"
DELIVERED: Final = Settlement(Outcome.DELIVERED)
DEAD: Final = Settlement(Outcome.DEAD, problem="410 Gone")
ORIGIN: Final = "https://tool.test"


class Harness(Protocol):
    """One set of data, empty at first, with `store` as the first handle on it."""

    @property
    def store(self) -> Store:
        """The first handle."""

    async def open(self) -> Store:
        """Another handle on the same data, as another process would have it."""

    async def open_with_a_new_key(self) -> Store:
        """Another handle on the same data, by a process that was given a new key in front of the old ones."""

    async def crash(self, store: Store) -> None:
        """Abandon a handle: it is neither closed nor are its workers retired."""

    async def advance(self, seconds: float) -> None:
        """Let the store's clock go on."""

    async def set_back(self, seconds: float) -> None:
        """Set the store's clock back, as an operator or a time server would; the clocks that cannot be set go on."""

    def raw(self) -> bytes:
        """Everything the database has written to its disk."""


def new_mail(
    text: str,
    box: str = "b1",
    *,
    dedup: str | None = None,
    needs: tuple[str, str] | None = None,
    remember_for: float | None = None,
) -> NewMail:
    return NewMail(box, "note", text.encode(), dedup, needs, remember_for)


def post(id: str, lane: str = "b1", *, origin: str = ORIGIN, **more: Any) -> Outgoing:
    return Outgoing(id, lane, "callback", origin, f"{origin}/callback/{id}", f"body of {id}".encode(), **more)


def retry(delay: float) -> Settlement:
    return Settlement(Outcome.RETRY, problem="503 Service Unavailable", delay=delay)


async def claim(
    store: Store,
    worker: str = ANNA,
    *,
    kind: str = KIND,
    limit: int = 100,
    mail_bytes: int = MAIL_BYTES,
    quota: Quota[str] | None = None,
) -> list[Claim]:
    """What a worker that keeps its lease gets."""
    await store.renew(worker)
    return await store.claim(worker, kind, limit, mail_bytes, quota)


async def claim_one(store: Store, worker: str = ANNA, *, kind: str = KIND) -> Claim:
    (only,) = await claim(store, worker, kind=kind)
    return only


async def running(store: Store, id: str = "b1", worker: str = ANNA) -> Claim:
    """A new box in a worker's hands."""
    assert await store.create(NewBox(id, KIND))
    return await claim_one(store, worker)


async def idle(store: Store, id: str = "b1", **commit: Any) -> None:
    """A box that was run once, committed this, and has nothing more to do."""
    await store.commit(await running(store, id), Commit(**commit))


async def accepted(store: Store, *new_mails: NewMail) -> None:
    for one in new_mails:
        assert await store.accept(one) is AcceptResult.ACCEPTED


async def send(store: Store, *posts: Outgoing) -> None:
    """Put POSTs into the outbox, as the commit of a box that ends with it."""
    assert await store.create(NewBox(f"sender of {posts[0].id}", "sender"))
    await store.commit(await claim_one(store, "postmaster", kind="sender"), Commit(outgoing=posts, forget_for=0))


async def take(
    store: Store, worker: str = ANNA, limit: int = 100, *, quota: Quota[tuple[str, bool]] | None = None
) -> list[TakenPost]:
    """What a sender that keeps its lease gets."""
    await store.renew(worker)
    return await store.take(worker, limit, quota)


async def take_one(store: Store, worker: str = ANNA) -> TakenPost:
    (only,) = await take(store, worker)
    return only


async def taken_over(harness: Harness, store: Store, worker: str) -> Claim:
    """The claim of the worker that lives, once the lease of the one that had the box is certain to have ended.

    A store may find out a little late, since it looks no more often than leases end: two leases are the most.
    """
    await harness.advance(store.lease.seconds)
    if not (claims := await claim(store, worker)):
        await harness.advance(store.lease.seconds)
        claims = await claim(store, worker)
    (only,) = claims
    return only


async def post_taken_over(harness: Harness, store: Store, worker: str) -> TakenPost:
    """The same for a POST."""
    await harness.advance(store.lease.seconds)
    if not (posts := await take(store, worker)):
        await harness.advance(store.lease.seconds)
        posts = await take(store, worker)
    (only,) = posts
    return only


def texts(claim: Claim) -> list[str]:
    return [mail.body.decode() for mail in claim.mail]


def seqs(claim: Claim) -> list[int]:
    return [mail.seq for mail in claim.mail]


def ids(taken: list[TakenPost]) -> list[str]:
    return [one.outgoing.id for one in taken]


async def visible(store: Store, *boxes: str, records: tuple[str, ...] = ("call",)) -> Mapping[str, Any]:
    """All that can be seen of these boxes and of the outbox without changing anything."""
    seen: dict[str, Any] = {
        "waiting": await store.outbox(dead=False),
        "dead": await store.outbox(dead=True),
        "backlog": await store.backlog(KIND),
    }
    for id in boxes:
        kept = [await store.records(id, kind) for kind in records]
        seen[id] = (await store.box(id), await store.entries(id), kept)
    return seen
