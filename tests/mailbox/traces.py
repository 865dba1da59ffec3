"""Traces: what belongs together is known again by whoever comes next, in whatever process, however much later."""

from rapkit.mailbox import Commit, Fact, NewBox, NewMail, Record, Store, Timer
from tests.mailbox.harness import ANNA, BERT, KIND, Harness, accepted, claim_one, idle, new_mail, running, seqs

ONE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TWO = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
CALL = ("call", "c1")


def about(text: str, traceparent: str = "", needs: tuple[str, str] | None = None) -> NewMail:
    return NewMail("b1", "note", text.encode(), needs=needs, traceparent=traceparent)


async def traces(store: Store) -> dict[str, str]:
    claimed = await claim_one(store, BERT)
    return {mail.body.decode(): mail.traceparent for mail in claimed.mail}


async def trace_of_box(store: Store) -> str:
    box = await store.box("b1")
    assert box is not None
    return box.traceparent


class TracesContract:
    async def test_a_letter_brings_the_trace_it_belongs_to(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await accepted(store, about("first", ONE), about("second"), about("third", TWO))

        assert await traces(store) == {"first": ONE, "second": "", "third": TWO}

    async def test_a_letter_that_claims_its_box_brings_its_trace_too(self, harness: Harness) -> None:
        store = harness.store
        await store.renew(ANNA)
        await store.create(NewBox("b1", KIND, idle=True))

        _, claimed = await store.accept_claimed(about("hello", ONE), ANNA)

        assert claimed is not None
        assert [mail.traceparent for mail in claimed.mail] == [ONE]
        await store.retire(ANNA)
        assert await traces(store) == {"hello": ONE}

    async def test_a_letter_without_a_trace_continues_that_of_the_record_it_needs(self, harness: Harness) -> None:
        """A tool that knows nothing of traces answers a call that is part of one."""
        store = harness.store
        await idle(store, put=[Record(*CALL, b"x", ONE), Record("call", "c2", b"y")])
        assert await store.records("b1", "call") == [Record(*CALL, b"x", ONE), Record("call", "c2", b"y")]

        await accepted(
            store,
            about("says nothing", needs=CALL),
            about("knows better", TWO, needs=CALL),
            about("another", needs=("call", "c2")),
            about("about nothing"),
        )

        assert await traces(store) == {"says nothing": ONE, "knows better": TWO, "another": "", "about nothing": ""}

    async def test_a_letter_that_claims_its_box_continues_the_trace_of_its_record_too(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, put=[Record(*CALL, traceparent=ONE)])

        _, claimed = await store.accept_claimed(about("hello", needs=CALL), ANNA)

        assert claimed is not None
        assert [mail.traceparent for mail in claimed.mail] == [ONE]

    async def test_a_record_that_is_written_anew_has_the_trace_of_whoever_wrote_it_last(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        await store.commit(claimed, Commit(put=[Record(*CALL, b"1", ONE)], keep=True))
        await store.commit(claimed, Commit(put=[Record(*CALL, b"2", TWO)], keep=True))
        assert await store.records("b1", "call") == [Record(*CALL, b"2", TWO)]

        await store.note(NewBox("b1", KIND), Fact("b1", *CALL, b"3"))
        assert await store.records("b1", "call") == [Record(*CALL, b"3")]

    async def test_letters_of_a_commit_bring_their_traces(self, harness: Harness) -> None:
        store = harness.store
        await idle(store)
        await idle(store, "b2", new_mails=[about("from b2", ONE)])

        assert await traces(store) == {"from b2": ONE}

    async def test_a_box_keeps_the_trace_of_its_last_commit_for_a_slice_without_mail(self, harness: Harness) -> None:
        store = harness.store
        claimed = await running(store)
        assert claimed.box.traceparent == ""
        await store.commit(claimed, Commit(traceparent=ONE, keep=True))
        assert await trace_of_box(store) == ONE
        await store.commit(claimed, Commit(timers=[Timer("alarm", claimed.now + 30)]))
        await harness.advance(30)

        claimed = await claim_one(store)
        assert claimed.box.traceparent == ONE
        await store.commit(claimed, Commit(traceparent=TWO, timers=[Timer("alarm", None)]))
        assert await trace_of_box(store) == TWO
        await accepted(store, new_mail("hello"))
        claimed = await claim_one(store)
        assert claimed.box.traceparent == TWO
        await store.commit(claimed, Commit(consumed=seqs(claimed), traceparent=""))
        assert await trace_of_box(store) == ""

    async def test_a_box_that_a_letter_claims_brings_the_trace_of_its_last_commit(self, harness: Harness) -> None:
        store = harness.store
        await idle(store, traceparent=ONE)

        _, claimed = await store.accept_claimed(about("hello"), ANNA)

        assert claimed is not None
        assert claimed.box.traceparent == ONE
        assert claimed.box == await store.box("b1")
