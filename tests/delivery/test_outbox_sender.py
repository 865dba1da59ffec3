import asyncio
import contextlib
import itertools
import json
import re
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from standardwebhooks import Webhook
from tests.server.sink import PATIENCE, Sink, after, answer, listening, never, reset

from rapkit.delivery.guard import Guard
from rapkit.delivery.http_client import DeliveryTimeouts, HttpClient, HttpResponse
from rapkit.delivery.outbox_sender import DeliveryOutcome, FollowUp, OutboxSender, Report, SendLimits
from rapkit.delivery.retry import POLICIES, PostKind, RetryPolicy
from rapkit.errors import ConfigError
from rapkit.mailbox import Commit, NewBox, NewMail, OutboxRow, Outcome, Outgoing, Settlement, Store, TakenPost
from rapkit.stores import open_store
from rapkit.tracing import Tracing

SECRETS = ("whsec_" + "QUJDREVGR0hJSktMTU5PUFFSU1RVVldY", "whsec_" + "YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4")
TRACE = "0af7651916cd43dd8448eb211c80319c"
TRACEPARENT = f"00-{TRACE}-b7ad6b7169203331-01"
EAGER: Mapping[PostKind, RetryPolicy] = {**POLICIES, PostKind.CALLBACK: RetryPolicy(0.01, 1, 0.02, 60)}

_numbers = itertools.count(1)


class Post:
    """A store to put messages into, and outbox senders that deliver them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.store: Store = open_store(f"sqlite:///{path}")

    async def send(self, *outgoing: Outgoing) -> None:
        """Commit these POSTs, in this order."""
        await self.store.renew("sender")
        await self.store.create(NewBox(f"box {next(_numbers)}", "box"))
        (claim,) = await self.store.claim("sender", "box", 1)
        await self.store.commit(claim, Commit(outgoing=outgoing))

    @contextlib.asynccontextmanager
    async def outbox_sender(
        self, *, timeouts: DeliveryTimeouts | None = None, **options: Any
    ) -> AsyncIterator[OutboxSender]:
        """An outbox sender at work, under a lease of its own; in the end it is told to drain."""
        worker = f"worker {next(_numbers)}"
        await self.store.renew(worker)
        async with HttpClient(Guard(loopback=True), timeouts) as client:
            outbox_sender = OutboxSender(self.store, client, worker, **{"policies": EAGER, **options})
            running = asyncio.create_task(outbox_sender.run())
            try:
                yield outbox_sender
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)
                await outbox_sender.drain(0)
                await self.store.retire(worker)

    async def empty(self) -> None:
        """Return when nothing is left to be delivered."""
        async with asyncio.timeout(PATIENCE):
            while await self.store.outbox(dead=False, limit=1):
                await asyncio.sleep(0.01)

    async def waiting(self) -> OutboxRow:
        """The one message that failed and waits for its next attempt."""
        async with asyncio.timeout(PATIENCE):
            while not [outbox_row for outbox_row in await self.store.outbox(dead=False) if outbox_row.problem]:
                await asyncio.sleep(0.01)
        (outbox_row,) = await self.store.outbox(dead=False)
        return outbox_row


@pytest.fixture
async def post(tmp_path: Path) -> AsyncIterator[Post]:
    office = Post(tmp_path / "post.db")
    yield office
    await office.store.close()


def to(sink: Sink, id: str, lane: str | None = None, **more: Any) -> Outgoing:
    fields = {"kind": PostKind.CALLBACK, "origin": sink.url, "url": f"{sink.url}/{id}", "body": f'"{id}"'.encode()}
    return Outgoing(id=id, lane=lane or id, **{**fields, **more})


def arrived(sink: Sink) -> list[str]:
    return [json.loads(post.body) for post in sink.posts]


async def test_a_message_is_posted_as_it_was_committed(post: Post, sink: Sink) -> None:
    """TRA-1, CB-1"""
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(clock=lambda: 1234.9):
        (request,) = await sink.received(1)
        await post.empty()

    assert (request.method, request.target, request.body) == ("POST", "/m1", b'"m1"')
    assert request.headers["content-type"] == "application/json"
    assert (request.headers["webhook-id"], request.headers["webhook-timestamp"]) == ("m1", "1234")
    assert "webhook-signature" not in request.headers


async def test_a_signature_satisfies_the_standard_library_of_the_receivers(post: Post, sink: Sink) -> None:
    await post.send(to(sink, "m1", body=b'{"text": "Gr\xc3\xbc\xc3\x9fe"}'))
    async with post.outbox_sender(secrets=SECRETS):
        (request,) = await sink.received(1)

    for secret in SECRETS:
        assert Webhook(secret).verify(request.body, request.headers) == {"text": "Grüße"}


@pytest.mark.parametrize("trouble", [answer(500), answer(503), answer(302), reset], ids=["500", "503", "302", "reset"])
async def test_what_may_succeed_later_is_tried_again_as_the_same_message(post: Post, sink: Sink, trouble: Any) -> None:
    """CB-3"""
    sink.script = [trouble, trouble, trouble]
    await post.send(to(sink, "m1"))
    async with post.outbox_sender():
        requests = await sink.received(4)
        await post.empty()

    assert {(request.body, request.webhook_id) for request in requests} == {(b'"m1"', "m1")}
    assert len(sink.posts) == 4


async def test_a_receiver_that_takes_too_long_is_tried_again(post: Post, sink: Sink) -> None:
    """CB-3"""
    sink.script = [never]
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(timeouts=DeliveryTimeouts(connect=1, total=0.1)):
        first, second = await sink.received(2)
        await post.empty()

    assert (first.body, first.webhook_id) == (second.body, second.webhook_id)


async def test_a_receiver_nobody_listens_for_is_tried_again(post: Post, sink: Sink) -> None:
    """CB-3"""
    await sink.down()
    await post.send(to(sink, "m1"))
    async with post.outbox_sender():
        outbox_row = await post.waiting()
        assert outbox_row.problem is not None
        assert outbox_row.problem.startswith(sink.url)
        await sink.up()
        await sink.received(1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 408, 409, 410, 413, 429])
async def test_a_client_error_ends_a_message_at_once(post: Post, sink: Sink, status: int) -> None:
    """CB-4"""
    sink.otherwise = answer(status, "Retry-After: 0\r\n")
    await post.send(to(sink, "m1"))
    async with post.outbox_sender():
        await post.empty()

    (dead,) = await post.store.outbox(dead=True)
    assert (dead.id, dead.attempts, dead.problem) == ("m1", 1, f"{sink.url} answered {status}")
    assert len(sink.posts) == 1


async def test_a_message_is_given_up_at_its_horizon(post: Post, sink: Sink) -> None:
    """CB-3"""
    sink.otherwise = answer(503)
    policies = {**POLICIES, PostKind.CALLBACK: RetryPolicy(0.02, 1, 0.02, 0.1)}
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(policies=policies):
        await post.empty()

    (dead,) = await post.store.outbox(dead=True)
    assert dead.problem == f"{sink.url} answered 503; given up after {dead.attempts} attempts"
    assert dead.attempts == len(sink.posts) > 1


async def test_one_that_reached_nobody_and_was_given_up_is_told_in_one_clean_line(post: Post, sink: Sink) -> None:
    """The client's error ends in a full stop, and one attempt is not several."""
    await post.send(replace(to(sink, "m1"), url="http://127.0.0.1:1/cb"))
    async with post.outbox_sender(policies={**POLICIES, PostKind.CALLBACK: RetryPolicy(1, 1, 1, 0)}):
        await post.empty()

    (dead,) = await post.store.outbox(dead=True)
    assert re.search(r"[^.]; given up after 1 attempt$", dead.problem or ""), dead.problem


async def test_a_dead_letter_can_be_sent_again(post: Post, sink: Sink) -> None:
    sink.script = [answer(410)]
    await post.send(to(sink, "m1"))
    async with post.outbox_sender():
        await post.empty()
        assert await post.store.resend(["m1"]) == 1
        await sink.received(2)
        await post.empty()

    assert await post.store.outbox(dead=True) == []


async def test_within_a_lane_nothing_overtakes_a_message_that_is_tried_again(post: Post, sink: Sink) -> None:
    """CB-3, CB-5"""
    sink.script = [answer(503), reset, answer(500)]
    await post.send(*(to(sink, f"m{number}", "lane") for number in range(1, 6)))
    async with post.outbox_sender():
        await post.empty()

    assert arrived(sink) == ["m1", "m1", "m1", "m1", "m2", "m3", "m4", "m5"]


async def test_within_a_lane_the_next_waits_for_the_answer_to_the_one_before(post: Post, sink: Sink) -> None:
    release = asyncio.Event()
    sink.script = [after(release, answer(200))]
    await post.send(to(sink, "m1", "lane"), to(sink, "m2", "lane"), to(sink, "elsewhere", "other lane"))
    async with post.outbox_sender():
        await sink.received(2)
        assert sorted(arrived(sink)) == ["elsewhere", "m1"]
        release.set()
        await post.empty()

    assert arrived(sink)[2:] == ["m2"]


async def test_a_lane_goes_on_after_a_message_that_was_given_up(post: Post, sink: Sink) -> None:
    """CB-4"""
    sink.script = [answer(404)]
    await post.send(to(sink, "m1", "lane"), to(sink, "m2", "lane"))
    async with post.outbox_sender():
        await post.empty()

    assert arrived(sink) == ["m1", "m2"]
    assert [outbox_row.id for outbox_row in await post.store.outbox(dead=True)] == ["m1"]


async def test_many_lanes_keep_their_order_whatever_happens_to_them(post: Post, sink: Sink) -> None:
    """INV-12"""
    sink.script = [answer(503), reset, answer(200)] * 20
    messages = [to(sink, f"{lane}.{number}", f"lane {lane}") for number in range(6) for lane in range(15)]
    await post.send(*messages)
    async with post.outbox_sender():
        await post.empty()

    for lane in range(15):
        mine = [id for id in arrived(sink) if id.startswith(f"{lane}.")]
        assert list(dict.fromkeys(mine)) == [f"{lane}.{number}" for number in range(6)]
        assert mine == sorted(mine)


async def test_an_origin_that_never_answers_holds_up_nobody_else(post: Post, sink: Sink) -> None:
    """INV-12: far more is queued for it than may be under way at all."""
    async with listening() as dead:
        dead.otherwise = never
        await post.send(*(to(dead, f"dead-{number}") for number in range(400)))
        await post.send(*(to(sink, f"m{number}") for number in range(50)))
        async with post.outbox_sender(send_limits=SendLimits(total=150, per_origin=10)):
            await sink.received(50)

            assert 0 < len(dead.posts) <= 4


@pytest.mark.parametrize("first_answers", [False, True], ids=["never", "at first"])
async def test_many_origins_that_do_not_answer_together_hold_up_nobody_else(
    post: Post, sink: Sink, first_answers: bool
) -> None:
    """Far more is queued for them than may be under way at all, and none of it gives its place back."""
    async with contextlib.AsyncExitStack() as stack:
        dead = [await stack.enter_async_context(listening()) for _ in range(18)]
        for each in dead:
            each.script, each.otherwise = [answer(200)] if first_answers else [], never
        async with post.outbox_sender(send_limits=SendLimits(total=256, per_origin=16, patience=3600)) as outbox_sender:
            if first_answers:
                await post.send(*(to(each, f"first-{number}") for number, each in enumerate(dead)))
                await post.empty()
            await post.send(*(to(each, f"dead-{at}-{n}") for n in range(20) for at, each in enumerate(dead)))
            async with asyncio.timeout(PATIENCE):
                while outbox_sender.under_way < 18:
                    await asyncio.sleep(0.01)
            await post.send(*(to(sink, f"m{number}") for number in range(20)))
            await sink.received(20)

            assert 18 <= outbox_sender.under_way < 256


async def test_origins_that_have_answered_have_places_that_new_ones_cannot_take(post: Post, sink: Sink) -> None:
    async with contextlib.AsyncExitStack() as stack:
        dead = [await stack.enter_async_context(listening()) for _ in range(20)]
        for each in dead:
            each.otherwise = never
        async with post.outbox_sender(send_limits=SendLimits(total=16, patience=3600)) as outbox_sender:
            await post.send(to(sink, "first"))
            await post.empty()
            await post.send(*(to(each, f"dead-{number}") for number, each in enumerate(dead)))
            async with asyncio.timeout(PATIENCE):
                while outbox_sender.under_way < 14:
                    await asyncio.sleep(0.01)
            await post.send(*(to(sink, f"m{number}") for number in range(5)))
            await sink.received(6)

            assert sum(len(each.posts) for each in dead) == 14


async def test_large_messages_that_are_not_answered_neither_fill_the_memory_nor_hold_up_small_ones(
    post: Post, sink: Sink
) -> None:
    large = b"x" * 100_000
    async with contextlib.AsyncExitStack() as stack:
        dead = [await stack.enter_async_context(listening()) for _ in range(10)]
        for each in dead:
            each.otherwise = never
        async with post.outbox_sender(send_limits=SendLimits(patience=3600, bytes=500_000)):
            for number, each in enumerate(dead):
                await post.send(replace(to(each, f"dead-{number}"), body=large))
            await post.send(*(to(sink, f"m{number}") for number in range(20)))
            await sink.received(20)

            assert 5 <= sum(len(each.posts) for each in dead) <= 6


async def test_an_origin_stays_silent_between_two_attempts_until_it_answers(post: Post, sink: Sink) -> None:
    sink.otherwise = reset
    policies = {**POLICIES, PostKind.CALLBACK: RetryPolicy(3600, 1, 3600, 7200)}
    async with post.outbox_sender(policies=policies) as outbox_sender:
        await post.send(to(sink, "m1"))
        await post.waiting()
        assert outbox_sender.silent_origins == 1
        sink.otherwise = never
        await post.send(*(to(sink, f"n{number}") for number in range(20)))
        await sink.received(1 + 4)
        assert outbox_sender.under_way == 4
        await sink.down()
        await sink.up()
        sink.otherwise = answer(200)
        await post.send(to(sink, "m2"))
        async with asyncio.timeout(PATIENCE):
            while outbox_sender.silent_origins:
                await asyncio.sleep(0.01)


async def test_all_silent_origins_together_have_a_part_of_the_places(post: Post, sink: Sink) -> None:
    policies = {**POLICIES, PostKind.CALLBACK: RetryPolicy(3600, 1, 3600, 7200)}
    async with contextlib.AsyncExitStack() as stack:
        dead = [await stack.enter_async_context(listening()) for _ in range(20)]
        for each in dead:
            each.script, each.otherwise = [reset], never
        async with post.outbox_sender(
            policies=policies, send_limits=SendLimits(total=32, patience=3600)
        ) as outbox_sender:
            await post.send(*(to(each, f"first-{number}") for number, each in enumerate(dead)))
            async with asyncio.timeout(PATIENCE):
                while outbox_sender.silent_origins < 20:
                    await asyncio.sleep(0.01)
            await post.send(*(to(each, f"dead-{number}") for number, each in enumerate(dead[:8])))
            async with asyncio.timeout(PATIENCE):
                while outbox_sender.under_way < 8:
                    await asyncio.sleep(0.01)
            await post.send(*(to(each, f"late-{number}") for number, each in enumerate(dead)))
            await post.send(*(to(sink, f"m{number}") for number in range(20)))
            await sink.received(20)

            assert [len(each.posts) for each in dead] == [2] * 8 + [1] * 12


async def test_slow_answers_leave_the_common_places_to_others(post: Post, sink: Sink) -> None:
    """Item 12: all places are taken by an origin that answers late; each of its messages is sent once all the same."""
    release = asyncio.Event()
    async with listening() as slow:
        slow.otherwise = after(release, answer(200))
        await post.send(*(to(slow, f"slow-{number}") for number in range(6)))
        send_limits = SendLimits(total=1, per_silent_origin=1, patience=0.05)
        async with post.outbox_sender(send_limits=send_limits):
            await slow.received(1)
            await post.send(*(to(sink, f"m{number}") for number in range(20)))
            await sink.received(20)
            assert len(slow.posts) == 1  # nothing more is taken for it
            release.set()
            await post.empty()

        assert sorted(arrived(slow)) == [f"slow-{number}" for number in range(6)]


async def test_views_do_not_take_the_places_of_results(post: Post, sink: Sink) -> None:
    """Item 7: an origin that hangs on views has answered every one of its results."""
    hanging = asyncio.Event()
    sink.script = [after(hanging, answer(200))] * 2
    views = [to(sink, f"v{number}", kind=PostKind.VIEW, latest=True) for number in range(20)]
    await post.send(*views)
    async with post.outbox_sender(send_limits=SendLimits(per_origin=2, per_silent_origin=2, patience=0.05)):
        await sink.received(2)
        sink.otherwise = answer(200)
        await post.send(*(to(sink, f"m{number}") for number in range(20)))
        async with asyncio.timeout(PATIENCE):
            while len([id for id in arrived(sink) if id.startswith("m")]) < 20:
                await asyncio.sleep(0.01)
        hanging.set()
        await post.empty()


async def test_views_that_are_handed_over_at_once_take_no_more_places_than_others(post: Post, sink: Sink) -> None:
    """Item 7: an origin that hangs on views has its share of the places and no more, so that other origins are served."""
    store = post.store
    sink.otherwise = never
    async with post.outbox_sender(send_limits=SendLimits(total=100, per_origin=2)) as outbox_sender:
        await store.renew("sender")
        await store.create(NewBox("b1", "box"))
        (claim,) = await store.claim("sender", "box", 1)
        senders: list[bool] = []
        for number in range(4):
            views = [to(sink, f"v{number}", kind=PostKind.VIEW, latest=True)]
            with outbox_sender.reserve_for(views) as sender:
                senders.append(sender is not None)
                taken = await store.commit(claim, Commit(outgoing=views, keep=True), sender)
                outbox_sender.submit(taken, asyncio.get_running_loop().time())
        with outbox_sender.reserve_for([to(sink, "m1")]) as sender:
            assert sender is not None

    assert senders == [True, True, False, False]


@pytest.mark.parametrize("trouble", [answer(400), answer(404)])
async def test_a_refused_view_leaves_no_dead_letter(post: Post, sink: Sink, trouble: Any) -> None:
    sink.otherwise = trouble
    await post.send(to(sink, "v1", kind=PostKind.VIEW, latest=True))
    async with post.outbox_sender():
        await sink.received(1)
        await post.empty()

    assert await post.store.outbox(dead=True) == []


async def test_an_origin_that_answers_again_gets_the_rest(post: Post, sink: Sink) -> None:
    release = asyncio.Event()
    sink.otherwise = after(release, answer(200))
    await post.send(*(to(sink, f"m{number}") for number in range(100)))
    async with post.outbox_sender(send_limits=SendLimits(total=80, per_origin=5)):
        await sink.received(4)
        release.set()
        await post.empty()

    assert sorted(arrived(sink)) == sorted(f"m{number}" for number in range(100))


@pytest.mark.parametrize(
    "trouble", [answer(500), answer(410), answer(302), reset, answer(200)], ids=["500", "410", "302", "reset", "200"]
)
async def test_a_notice_is_sent_once_whatever_happens(post: Post, sink: Sink, trouble: Any) -> None:
    sink.otherwise = trouble
    await post.send(to(sink, "n1", kind=PostKind.NOTICE, once=True))
    async with post.outbox_sender():
        await sink.received(1)
        await post.empty()
        await post.send(to(sink, "fence"))
        async with asyncio.timeout(PATIENCE):
            while "fence" not in arrived(sink):
                await asyncio.sleep(0.01)

    assert arrived(sink).count("n1") == 1
    assert "n1" not in [outbox_row.id for outbox_row in await post.store.outbox(dead=True)]


@pytest.mark.parametrize(("status", "level"), [(404, "DEBUG"), (405, "DEBUG"), (410, "DEBUG"), (500, "WARNING")])
async def test_a_notice_the_server_has_no_endpoint_for_alarms_nobody(
    post: Post, sink: Sink, caplog: pytest.LogCaptureFixture, status: int, level: str
) -> None:
    """Item 16: notices are optional; servers that lack them answer 404."""
    caplog.set_level("DEBUG", "rapkit.delivery")
    sink.otherwise = answer(status)
    await post.send(to(sink, "n1", kind=PostKind.NOTICE, once=True))
    done = asyncio.Event()
    async with post.outbox_sender(on_attempt=lambda _taken, _settlement: done.set()):
        async with asyncio.timeout(PATIENCE):
            await done.wait()

    ours = [record for record in caplog.records if record.__dict__.get("message_id") == "n1"]
    assert [record.levelname for record in ours] == [level]
    assert await post.store.outbox(dead=True) == []


async def test_a_notice_nobody_receives_is_not_sent_later(post: Post, sink: Sink) -> None:
    await sink.down()
    await post.send(to(sink, "n1", kind=PostKind.NOTICE, once=True))
    async with post.outbox_sender():
        await post.empty()
    await sink.up()
    async with post.outbox_sender():
        await post.send(to(sink, "later"))
        await sink.received(1)

    assert arrived(sink) == ["later"]


async def test_a_receiver_may_ask_for_more_time(post: Post, sink: Sink) -> None:
    """CB-3"""
    sink.script = [answer(503, "Retry-After: 1800\r\n")]
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(policies=POLICIES, random_fraction=lambda: 0.0):
        outbox_row = await post.waiting()

        assert outbox_row.due_at is not None
        assert 1790 < outbox_row.due_at - time.time() < 1810
    assert len(sink.posts) == 1


async def test_waits_grow_from_attempt_to_attempt(post: Post, sink: Sink) -> None:
    """CB-3"""
    sink.otherwise = answer(503)
    growing = {**POLICIES, PostKind.CALLBACK: RetryPolicy(0.05, 100, 3600, 7200, jitter=0)}
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(policies=growing):
        await sink.received(2)

        async def failed_twice() -> OutboxRow:
            while True:
                (outbox_row,) = await post.store.outbox(dead=False)
                if outbox_row.attempts == 2 and outbox_row.due_at and outbox_row.due_at - time.time() < 5.5:
                    return outbox_row
                await asyncio.sleep(0.01)

        outbox_row = await asyncio.wait_for(failed_twice(), PATIENCE)
        assert outbox_row.due_at is not None
        assert 3 < outbox_row.due_at - time.time() < 5.1


async def test_a_target_that_is_forbidden_becomes_a_dead_letter_with_its_reason(post: Post, sink: Sink) -> None:
    """CB-1: it was allowed when it was accepted, and is no longer."""
    await post.send(to(sink, "m1", url="http://10.1.2.3/secret", origin="http://10.1.2.3:80"), to(sink, "m2"))
    async with post.outbox_sender():
        await post.empty()

    (dead,) = await post.store.outbox(dead=True)
    assert dead.problem is not None
    assert "leads to 10.1.2.3, which is private." in dead.problem
    assert "secret" not in dead.problem
    assert arrived(sink) == ["m2"]


async def test_an_aborted_post_is_broken_off_and_its_lane_goes_on(post: Post, sink: Sink) -> None:
    """CB-5: its box was stopped meanwhile, so nothing of what it said before is sent any more."""
    store = post.store
    sink.script = [never]
    await store.renew("sender")
    await store.create(NewBox("b1", "box", parent="thread", name="c1"))
    (claim,) = await store.claim("sender", "box", 1)
    await store.commit(claim, Commit(outgoing=[to(sink, "m1", "b1"), to(sink, "m2", "b1")]))
    async with post.outbox_sender(send_limits=SendLimits(total=1, per_origin=1)) as outbox_sender:
        await sink.received(1)
        stopped = await store.stop(["box"], "thread", "c1", remember_for=60)
        assert stopped.in_flight == ("m1",)
        await asyncio.wait_for(outbox_sender.abort([*stopped.in_flight, "no such"]), PATIENCE)
        (claim,) = await store.claim("sender", "box", 1)
        await store.commit(claim, Commit(outgoing=[to(sink, "cancelled", "b1")]))
        await post.empty()

    assert arrived(sink) == ["m1", "cancelled"]
    assert await store.outbox(dead=True) == []


async def test_what_is_aborted_before_it_was_handed_over_is_not_sent(post: Post, sink: Sink) -> None:
    """SUB-5: a commit and the cancellation after it can be answered in one flush, the cancellation first."""
    store = post.store
    async with post.outbox_sender() as outbox_sender:
        await store.create(NewBox("b1", "box", parent="thread", name="c1"))
        (claim,) = await store.claim("sender", "box", 1)
        first = [to(sink, "m1", "b1")]
        with outbox_sender.reserve_for(first) as sender:
            taken = await store.commit(claim, Commit(outgoing=first, keep=True), sender)
            stopped = await store.stop(["box"], "thread", "c1", remember_for=60)
            await outbox_sender.abort(stopped.in_flight)
            outbox_sender.submit(taken, asyncio.get_running_loop().time())
        (claim,) = await store.claim("sender", "box", 1)
        await store.commit(claim, Commit(outgoing=[to(sink, "cancelled", "b1")]))
        await post.empty()

    assert arrived(sink) == ["cancelled"]


async def test_draining_waits_for_what_is_under_way(post: Post, sink: Sink) -> None:
    release = asyncio.Event()
    sink.otherwise = after(release, answer(200))
    await post.send(*(to(sink, f"m{number}") for number in range(4)))
    async with post.outbox_sender() as outbox_sender:
        await sink.received(4)
        assert outbox_sender.under_way == 4
        draining = asyncio.create_task(outbox_sender.drain(PATIENCE))
        await asyncio.sleep(0.05)
        assert not draining.done()
        release.set()
        await draining
        assert outbox_sender.under_way == 0

    assert await post.store.outbox(dead=False) == []


async def test_what_could_not_end_is_delivered_by_whoever_comes_next(post: Post, sink: Sink) -> None:
    """INV-13"""
    sink.script = [never]
    await post.send(to(sink, "m1"))
    async with post.outbox_sender():
        await sink.received(1)
    async with post.outbox_sender():
        first, second = await sink.received(2)
        await post.empty()

    assert first.webhook_id == second.webhook_id == "m1"


async def test_why_a_post_was_refused_is_for_the_log_and_for_nobody_else(
    post: Post, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    fates: list[DeliveryOutcome] = []

    async def report(_taken: TakenPost, delivery_outcome: DeliveryOutcome) -> FollowUp:
        fates.append(delivery_outcome)
        return FollowUp()

    problem = b'{"detail": "It leads to 127.0.0.1."}'
    sink.script = [answer(400, "Content-Type: application/problem+json\r\n", problem)]
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(report=report):
        await post.empty()

    assert f"undeliverable: {sink.url} answered 400; it says: It leads to 127.0.0.1." in caplog.messages
    assert fates == [DeliveryOutcome(Outcome.DEAD, 400, f"{sink.url} answered 400")]


@pytest.mark.parametrize(
    ("behaviour", "delivery_outcome"),
    [
        (answer(200), DeliveryOutcome(Outcome.DELIVERED, 200, None)),
        (answer(410), DeliveryOutcome(Outcome.DEAD, 410, "{url} answered 410")),
    ],
    ids=["delivered", "dead"],
)
async def test_whoever_wants_to_know_gets_a_letter_with_the_fate(
    post: Post, sink: Sink, behaviour: Any, delivery_outcome: DeliveryOutcome
) -> None:
    told: list[tuple[str, DeliveryOutcome]] = []

    async def report(taken: TakenPost, delivery_outcome: DeliveryOutcome) -> FollowUp:
        told.append((taken.outgoing.id, delivery_outcome))
        return FollowUp(NewMail("thread", "delivery_outcome", taken.outgoing.id.encode(), dedup=taken.outgoing.id))

    reporting: Report = report
    sink.script = [answer(503), behaviour]
    await post.store.create(NewBox("thread", "thread"))
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(report=reporting):
        await post.empty()

    problem = delivery_outcome.problem and delivery_outcome.problem.format(url=sink.url)
    assert told == [("m1", DeliveryOutcome(delivery_outcome.outcome, delivery_outcome.status, problem))]
    await post.store.renew("reader")
    (claim,) = await post.store.claim("reader", "thread", 1)
    assert [(mail.kind, mail.body) for mail in claim.mail] == [("delivery_outcome", b"m1")]


async def test_what_was_delivered_is_settled_when_the_store_recovers(
    post: Post, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    """CB-5: it is not delivered again meanwhile."""
    db = apsw.Connection(str(post.path))
    db.set_busy_timeout(5000)
    await post.send(to(sink, "m1"))
    db.execute("CREATE TRIGGER failing BEFORE DELETE ON outbox BEGIN SELECT RAISE(ABORT, 'disk failure'); END")
    async with post.outbox_sender():
        await sink.received(1)
        async with asyncio.timeout(PATIENCE):
            while "cannot settle m1" not in caplog.text:
                await asyncio.sleep(0.01)
        db.execute("DROP TRIGGER failing")
        db.close()
        await post.empty()

    assert arrived(sink) == ["m1"]


async def test_messages_that_come_while_it_waits_are_found_at_once(post: Post, sink: Sink) -> None:
    # A sender that only looked now and then would need its longest wait for each.
    async with post.outbox_sender(), asyncio.timeout(PATIENCE):
        for number in range(20):
            await post.send(to(sink, f"m{number}"))
            await sink.received(number + 1)


@pytest.fixture
def spans() -> InMemorySpanExporter:
    return InMemorySpanExporter()


@pytest.fixture
def tracing(spans: InMemorySpanExporter) -> Tracing:
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(spans))
    return Tracing(provider)


def seen(span: ReadableSpan) -> tuple[str, dict[str, Any]]:
    """The span as a traceparent that continues the call's, and what it says."""
    assert span.parent is not None
    assert span.context is not None
    assert f"00-{span.parent.trace_id:032x}-{span.parent.span_id:016x}-{span.parent.trace_flags:02x}" == TRACEPARENT
    assert span.name == "rap.callback"
    traceparent = f"00-{span.context.trace_id:032x}-{span.context.span_id:016x}-{span.context.trace_flags:02x}"
    return traceparent, dict(span.attributes or {})


async def test_every_attempt_is_a_span_of_the_calls_trace_and_tells_the_receiver(
    post: Post, sink: Sink, spans: InMemorySpanExporter, tracing: Tracing
) -> None:
    sink.script = [answer(503), reset, answer(200)]
    await post.send(to(sink, "m1", url=f"{sink.url}/s3cret?s3cret", traceparent=TRACEPARENT))
    async with post.outbox_sender(tracing=tracing):
        requests = await sink.received(3)
        await post.empty()

    found = [seen(span) for span in spans.get_finished_spans()]
    assert [request.headers["traceparent"] for request in requests] == [traceparent for traceparent, _ in found]
    assert len({traceparent for traceparent, _ in found}) == 3
    same = {"rap.message_id": "m1", "rap.origin": sink.url, "http.request.method": "POST"}
    assert [said for _, said in found] == [
        {**same, "rap.attempt": 1, "http.response.status_code": 503, "rap.outcome": "retry"},
        {**same, "rap.attempt": 2, "rap.outcome": "retry"},
        {**same, "rap.attempt": 3, "http.response.status_code": 200, "rap.outcome": "delivered"},
    ]
    assert [span.status.is_ok for span in spans.get_finished_spans()] == [False, False, True]
    assert not [span for span in spans.get_finished_spans() if "s3cret" in span.to_json()]


async def test_a_post_that_is_broken_off_ends_its_span(
    post: Post, sink: Sink, spans: InMemorySpanExporter, tracing: Tracing
) -> None:
    sink.otherwise = never
    await post.send(to(sink, "m1", traceparent=TRACEPARENT))
    async with post.outbox_sender(tracing=tracing) as outbox_sender:
        await sink.received(1)
        await asyncio.wait_for(outbox_sender.abort(["m1"]), PATIENCE)

    (span,) = spans.get_finished_spans()
    assert seen(span)[1]["rap.outcome"] == "cancelled"


async def test_a_message_of_no_trace_tells_the_receiver_of_none(
    post: Post, sink: Sink, spans: InMemorySpanExporter, tracing: Tracing
) -> None:
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(tracing=tracing):
        (request,) = await sink.received(1)
        await post.empty()

    assert "traceparent" not in request.headers
    assert spans.get_finished_spans() == ()


async def test_without_an_sdk_the_receiver_is_told_of_the_trace_as_it_came(post: Post, sink: Sink) -> None:
    await post.send(to(sink, "m1", traceparent=TRACEPARENT))
    async with post.outbox_sender():
        (request,) = await sink.received(1)

    assert request.headers["traceparent"] == TRACEPARENT


async def test_whoever_counts_is_told_of_every_attempt(post: Post, sink: Sink) -> None:
    told: list[tuple[str, int, Outcome]] = []

    def count(taken: TakenPost, settlement: Settlement) -> None:
        told.append((taken.outgoing.id, taken.attempts, settlement.outcome))

    sink.script = [answer(503), reset, answer(200), answer(410), answer(503)]
    await post.send(
        to(sink, "m1", "lane"), to(sink, "m2", "lane"), to(sink, "n1", "lane", kind=PostKind.NOTICE, once=True)
    )
    async with post.outbox_sender(on_attempt=count):
        await sink.received(5)
        async with asyncio.timeout(PATIENCE):
            while len(told) < 5:
                await asyncio.sleep(0.01)

    assert told == [
        ("m1", 1, Outcome.RETRY),
        ("m1", 2, Outcome.RETRY),
        ("m1", 3, Outcome.DELIVERED),
        ("m2", 1, Outcome.DEAD),
        ("n1", 1, Outcome.DEAD),
    ]


async def test_nothing_depends_on_whoever_counts(post: Post, sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    def fail(taken: TakenPost, settlement: Settlement) -> None:
        raise RuntimeError("cannot count")

    await post.send(to(sink, "m1", "lane"), to(sink, "m2", "lane"))
    async with post.outbox_sender(on_attempt=fail):
        await post.empty()

    assert arrived(sink) == ["m1", "m2"]
    assert "cannot count" in caplog.text


async def test_a_message_that_we_fail_to_send_for_a_reason_of_our_own_is_sent_later(
    post: Post, sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """CB-5: such as when no thread can be started to look a name up."""
    really_post = HttpClient.post
    tries: list[str] = []

    async def fail_at_first(client: HttpClient, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        tries.append(url)
        if len(tries) <= 2:
            raise RuntimeError("can't start new thread")
        return await really_post(client, url, body, headers)

    monkeypatch.setattr(HttpClient, "post", fail_at_first)
    await post.send(to(sink, "m1", "lane"), to(sink, "m2", "lane"))
    async with post.outbox_sender():
        await post.empty()

    assert arrived(sink) == ["m1", "m2"]
    assert "can't start new thread" in caplog.text


async def with_token(taken: TakenPost) -> tuple[bytes, Mapping[str, str]]:
    """Each attempt has a body and a token of its own."""
    body = json.dumps({"id": taken.outgoing.id, "attempt": taken.attempts, "token": "s3cret"}).encode()
    return body, {"authorization": f"Bearer s3cret-{taken.attempts}", "webhook-id": "forged"}


async def test_what_is_prepared_for_an_attempt_is_sent_and_signed_and_never_stored(post: Post, sink: Sink) -> None:
    """TRA-3: tokens are made when they are needed, so that they are in no database."""
    sink.script = [answer(503)]
    await post.send(to(sink, "m1"))
    async with post.outbox_sender(prepare=with_token, secrets=SECRETS):
        requests = await sink.received(2)
        await post.empty()

    for number, request in enumerate(requests, start=1):
        said = Webhook(SECRETS[0]).verify(request.body, request.headers)
        assert said == {"id": "m1", "attempt": number, "token": "s3cret"}
        assert request.headers["authorization"] == f"Bearer s3cret-{number}"
        assert request.headers["content-type"] == "application/json"
        assert request.webhook_id == "m1"
    assert not [file for file in post.path.parent.iterdir() if b"s3cret" in file.read_bytes()]


async def test_what_can_never_be_prepared_is_given_up_with_the_reason(post: Post, sink: Sink) -> None:
    async def prepare(taken: TakenPost) -> tuple[bytes, Mapping[str, str]]:
        if taken.outgoing.id == "m1":
            raise ConfigError("No token for http://tool.test. Set RAPKIT_TOKENS.")
        return taken.outgoing.body, {}

    await post.send(to(sink, "m1", "lane"), to(sink, "m2", "lane"))
    async with post.outbox_sender(prepare=prepare):
        await post.empty()

    (dead,) = await post.store.outbox(dead=True)
    assert (dead.id, dead.attempts) == ("m1", 1)
    assert dead.problem == "No token for http://tool.test. Set RAPKIT_TOKENS."
    assert arrived(sink) == ["m2"]


async def test_what_we_fail_to_prepare_is_sent_later(post: Post, sink: Sink, caplog: pytest.LogCaptureFixture) -> None:
    async def prepare(taken: TakenPost) -> tuple[bytes, Mapping[str, str]]:
        if taken.attempts < 3:
            raise RuntimeError("a mistake of ours")
        return taken.outgoing.body, {}

    await post.send(to(sink, "m1"))
    async with post.outbox_sender(prepare=prepare):
        await post.empty()

    assert arrived(sink) == ["m1"]
    assert "a mistake of ours" in caplog.text


@pytest.mark.parametrize("kind", [PostKind.INVOCATION, PostKind.ANSWER])
@pytest.mark.parametrize("how", ["refused", "nobody answered", "not prepared"])
async def test_a_thread_is_told_of_an_invocation_or_answer_that_was_given_up(
    post: Post, sink: Sink, kind: PostKind, how: str
) -> None:
    """INV-5, INV-6: whatever kept it from getting there, the model must be told that nothing will come."""

    async def prepare(taken: TakenPost) -> tuple[bytes, Mapping[str, str]]:
        if how == "not prepared":
            raise ConfigError("no token")
        return taken.outgoing.body, {}

    async def report(taken: TakenPost, delivery_outcome: DeliveryOutcome) -> FollowUp:
        told = f"{taken.outgoing.kind} {delivery_outcome.outcome} {delivery_outcome.status}: {delivery_outcome.problem}"
        return FollowUp(NewMail("thread", "delivery_outcome", told.encode(), dedup=taken.outgoing.id))

    problems = {
        "refused": f"422: {sink.url} answered 422",
        "nobody answered": f"503: {sink.url} answered 503; given up after 1 attempt",
        "not prepared": "None: no token",
    }
    sink.otherwise = answer(422) if how == "refused" else answer(503)
    policies = {**POLICIES, kind: RetryPolicy(1, 1, 1, 0)}
    await post.store.create(NewBox("thread", "thread", idle=True))
    await post.send(to(sink, "m1", kind=kind))
    async with post.outbox_sender(prepare=prepare, report=report, policies=policies):
        await post.empty()

    await post.store.renew("reader")
    (claim,) = await post.store.claim("reader", "thread", 1)
    assert [mail.body.decode() for mail in claim.mail] == [f"{kind} dead {problems[how]}"]


class Elsewhere:
    """Another process on the same file: it deletes what a cancellation deletes."""

    def __init__(self, path: Path) -> None:
        self._db = apsw.Connection(str(path))
        self._db.set_busy_timeout(5000)

    def delete(self, id: str) -> None:
        self._db.execute("DELETE FROM outbox WHERE id = ?", (id,))


async def test_what_another_process_has_deleted_is_not_begun(post: Post, sink: Sink) -> None:
    """Semantics 20: the row is looked at before dialling if it was taken more than a moment ago."""
    await post.store.renew("by hand")
    await post.send(to(sink, "m1"), to(sink, "m2"))
    taken = await post.store.take("by hand", 2)
    Elsewhere(post.path).delete("m1")
    async with HttpClient(Guard(loopback=True)) as client:
        outbox_sender = OutboxSender(post.store, client, "by hand", policies=EAGER)
        outbox_sender.submit(taken, since=asyncio.get_running_loop().time() - 1)
        await post.empty()
        await outbox_sender.drain(PATIENCE)

    assert arrived(sink) == ["m2"]


async def test_a_post_on_the_wire_is_aborted_when_another_process_deletes_it(post: Post, sink: Sink) -> None:
    """Semantics 20: so that nothing arrives long after a cancellation, wherever that came in."""
    sink.script = [never, never]
    await post.send(to(sink, "m1"), to(sink, "m2"))
    async with post.outbox_sender() as outbox_sender:
        await sink.received(2)
        Elsewhere(post.path).delete("m1")
        async with asyncio.timeout(PATIENCE):
            while outbox_sender.under_way == 2:
                await asyncio.sleep(0.01)

        assert outbox_sender.under_way == 1  # the other one still waits for its answer
        assert [outbox_row.id for outbox_row in await post.store.outbox(dead=False)] == ["m2"]
