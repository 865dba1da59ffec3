import asyncio
import contextlib
import re
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from rapkit.delivery.guard import Guard
from rapkit.delivery.http_client import DeliveryTimeouts, HttpClient, HttpResponse, PoolLimits
from rapkit.errors import DeliveryError, ForbiddenTarget

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BUSY = b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n"
LOCAL = Guard(loopback=True)

Behaviour = Callable[[asyncio.StreamWriter], Awaitable[None]]


def answering(raw: bytes) -> Behaviour:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(raw)
        await writer.drain()

    return behave


@dataclass
class Server:
    """An HTTP server that notes what it is sent, byte by byte."""

    behave: Behaviour
    heads: list[bytes] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    handlers: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def paths(self) -> list[str]:
        return [head.split(b" ", 2)[1].decode() for head in self.heads]

    def header(self, name: str) -> list[str]:
        return [line.partition(":")[2].strip() for line in self._lines() if line.lower().startswith(name + ":")]

    def _lines(self) -> list[str]:
        return self.heads[-1].decode().split("\r\n")

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.handlers.add(task)
        first = True
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                # Counted with its first request: a mere probe is not what keep-alive is about.
                self.connections += first
                first = False
                length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
                self.bodies.append(await reader.readexactly(int(length[1]) if length else 0))
                self.heads.append(head)
                await self.behave(writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.handlers.discard(task)
            writer.close()


@contextlib.asynccontextmanager
async def serving(
    behave: Behaviour | None = None, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    server = Server(behave or answering(OK))
    listener = await asyncio.start_server(server.handle, host, 0, ssl=tls)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        handlers = list(server.handlers)
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)


def free_port() -> int:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port: int = unused.getsockname()[1]
        return port


async def test_a_message_arrives_as_json_with_its_headers() -> None:
    """TRA-1."""
    body = '{"text":"Grüße"}'.encode()
    async with serving() as server, HttpClient(LOCAL) as client:
        answer = await client.post(f"{server.url}/callback", body, {"webhook-id": "msg_1"})

        assert answer == HttpResponse(200, None)
        assert server.bodies == [body]
        assert server.heads[0].startswith(b"POST /callback HTTP/1.1\r\n")
        assert server.header("content-type") == ["application/json"]
        assert server.header("webhook-id") == ["msg_1"]
        assert server.header("host") == [f"127.0.0.1:{server.port}"]
        assert server.header("content-length") == [str(len(body))]
        assert server.header("accept-encoding") == []


PROBLEM = b'{"title": "No", "status": 400, "detail": "callback_url: it leads to loopback."}'


def refusing(body: bytes, kind: bytes = b"application/problem+json", length: int | None = None) -> bytes:
    head = b"HTTP/1.1 400 No\r\nContent-Type: %b\r\nContent-Length: %d\r\n\r\n"
    return head % (kind, len(body) if length is None else length) + body


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (refusing(PROBLEM), "callback_url: it leads to loopback."),
        (refusing(PROBLEM, b"Application/Problem+JSON; charset=utf-8"), "callback_url: it leads to loopback."),
        (refusing(PROBLEM, b"text/html"), None),
        (refusing(PROBLEM.replace(b"callback_url", b"x" * 9000)), None),
        (refusing(PROBLEM, length=10_000_000), None),
        (refusing(PROBLEM).replace(b"400 No", b"503 No"), None),
    ],
    ids=["problem", "any spelling", "page", "long", "longer", "to be tried again"],
)
async def test_a_refusal_comes_with_its_reason(answer: bytes, reason: str | None) -> None:
    async with serving(answering(answer)) as server, HttpClient(LOCAL) as client:
        assert (await client.post(server.url, b"{}", {})).reason == reason


async def test_a_reason_that_breaks_off_does_not_take_back_the_refusal() -> None:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(refusing(PROBLEM[:20], length=200))
        await writer.drain()
        writer.close()

    async with serving(behave) as server, HttpClient(LOCAL) as client:
        assert await client.post(server.url, b"{}", {}) == HttpResponse(400)


async def test_a_reason_does_not_repeat_our_token() -> None:
    echo = PROBLEM.replace(b"loopback", b"a-token-of-some-length")
    async with serving(answering(refusing(echo))) as server, HttpClient(LOCAL) as client:
        answer = await client.post(server.url, b"{}", {"authorization": "Bearer a-token-of-some-length"})

    assert answer.reason == "callback_url: it leads to …."


@pytest.mark.parametrize(
    ("given", "arrives"),
    [
        ("", "/"),
        ("/", "/"),
        ("?token=abc", "/?token=abc"),
        ("/callback/", "/callback/"),
        ("//double//slash//", "//double//slash//"),
        ("/a?", "/a?"),
        ("/a?x=1&x=2&y=%20+%2B&=&&z", "/a?x=1&x=2&y=%20+%2B&=&&z"),
        ("/a?url=https://b.example/c?d=e", "/a?url=https://b.example/c?d=e"),
        ("/%7Euser/%41%2F%2f%00", "/%7Euser/%41%2F%2f%00"),
        ("/100%/%zz", "/100%/%zz"),
        ("/a;b=c,d!$&'()*+@:~[]|", "/a;b=c,d!$&'()*+@:~[]|"),
        ("/user@host:80/", "/user@host:80/"),
        ("/Grüße?q=ü", "/Gr%C3%BC%C3%9Fe?q=%C3%BC"),
        ("/a?{b}|c^`\\[]", "/a?{b}|c^`\\[]"),
        ("/a#fragment", "/a"),
        ("/a/./b/../c/%2e%2e/d", "/a/d"),
        ("/" + "x" * 4000, "/" + "x" * 4000),
    ],
)
async def test_the_url_is_used_exactly_as_given(given: str, arrives: str) -> None:
    """CB-1."""
    async with serving() as server, HttpClient(LOCAL) as client:
        await client.post(server.url + given, b"{}", {})

        assert server.paths == [arrives]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 204 No Content\r\n\r\n", HttpResponse(204)),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\ngone", HttpResponse(404)),
        (BUSY + b"Retry-After: 7\r\n\r\n", HttpResponse(503, 7.0)),
        (BUSY + b"Retry-After: soon\r\n\r\n", HttpResponse(503)),
        (BUSY + b"Retry-After: -5\r\n\r\n", HttpResponse(503)),
        (
            BUSY + b"Date: Wed, 21 Oct 2015 07:28:00 GMT\r\nRetry-After: Wed, 21 Oct 2015 07:30:00 GMT\r\n\r\n",
            HttpResponse(503, 120.0),
        ),
        (BUSY + b"Retry-After: Wed, 21 Oct 2015 07:30:00 GMT\r\n\r\n", HttpResponse(503)),
        (b"HTTP/1.1 500 Oops\r\nTransfer-Encoding: chunked\r\n\r\n4\r\noops\r\n0\r\n\r\n", HttpResponse(500)),
    ],
)
async def test_every_status_is_an_answer(answer: bytes, expected: HttpResponse) -> None:
    async with serving(answering(answer)) as server, HttpClient(LOCAL) as client:
        assert await client.post(server.url, b"{}", {}) == expected


@pytest.mark.parametrize(
    "answer",
    [
        OK,
        b"HTTP/1.1 200 OK\r\nContent-Length: 11\r\n\r\n" + b'{"ok":true}',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nOK\r\n0\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\nContent-Length: 30000\r\n\r\n" + b"x" * 30000,
    ],
)
async def test_connections_are_kept_alive(answer: bytes) -> None:
    async with serving(answering(answer)) as server, HttpClient(LOCAL) as client:
        for _ in range(10):
            await client.post(server.url, b"{}", {})

        assert (len(server.heads), server.connections) == (10, 1)


async def test_a_body_that_comes_after_the_head_keeps_the_connection_too() -> None:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n")
        await asyncio.sleep(0.01)
        writer.write(b"OK")

    async with serving(behave) as server, HttpClient(LOCAL) as client:
        for _ in range(5):
            await client.post(server.url, b"{}", {})

        assert server.connections == 1


async def test_a_redirect_is_an_answer_and_not_followed() -> None:
    async with serving() as inner:
        redirect = f"HTTP/1.1 307 Elsewhere\r\nLocation: {inner.url}/admin\r\nContent-Length: 0\r\n\r\n".encode()
        async with serving(answering(redirect)) as server, HttpClient(LOCAL) as client:
            assert await client.post(server.url, b"{}", {}) == HttpResponse(307)

        assert inner.heads == []


async def test_cookies_are_not_kept() -> None:
    cookie = b"HTTP/1.1 200 OK\r\nSet-Cookie: a=b; Path=/\r\nContent-Length: 0\r\n\r\n"
    async with serving(answering(cookie)) as server, HttpClient(LOCAL) as client:
        await client.post(server.url, b"{}", {})
        await client.post(server.url, b"{}", {})

        assert server.header("cookie") == []


async def test_a_proxy_from_the_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    async with serving() as proxy, serving() as server:
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        async with HttpClient(LOCAL) as client:
            await client.post(server.url, b"{}", {})

        assert (len(proxy.heads), len(server.heads)) == (0, 1)


async def test_a_huge_body_is_not_read_to_its_end() -> None:
    sent = 0

    async def behave(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(10_000):
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()
            sent += 0x10000

    async with serving(behave) as server, HttpClient(LOCAL) as client:
        assert await client.post(server.url, b"{}", {}) == HttpResponse(200)
        while server.handlers:
            await asyncio.sleep(0.01)

    # What the kernel buffers on both sides is a few megabytes; the body would have been 640.
    assert sent < 50_000_000


async def test_a_bomb_is_not_unpacked() -> None:
    bomb = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nbomb"
    async with serving(answering(bomb)) as server, HttpClient(LOCAL) as client:
        for _ in range(2):
            assert await client.post(server.url, b"{}", {}) == HttpResponse(200)

        assert server.connections == 1


async def test_a_body_that_stalls_does_not_take_back_the_answer() -> None:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await asyncio.sleep(60)

    async with serving(behave) as server, HttpClient(LOCAL, DeliveryTimeouts(total=0.3)) as client:
        assert await client.post(server.url, b"{}", {}) == HttpResponse(200)


async def test_a_body_that_breaks_off_does_not_take_back_the_answer() -> None:
    async def behave(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
        await writer.drain()
        writer.transport.abort()

    async with serving(behave) as server, HttpClient(LOCAL) as client:
        assert await client.post(server.url, b"{}", {}) == HttpResponse(200)


async def reset(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 20")
    await writer.drain()
    writer.transport.abort()


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()


async def silence(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("behave", "text"),
    [
        (reset, "connection"),
        (close, "connection closed before message completed"),
        (silence, "no answer within 0.3 s"),
        (answering(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"), "invalid"),
    ],
)
async def test_no_answer_is_a_delivery_error_without_the_urls_secrets(behave: Behaviour, text: str) -> None:
    """INV-4, CB-3."""
    async with serving(behave) as server, HttpClient(LOCAL, DeliveryTimeouts(total=0.3)) as client:
        with pytest.raises(DeliveryError, match=re.escape(f"{server.url}: ")) as caught:
            await client.post(f"{server.url}/SECRET?SECRET", b"{}", {})

    assert text in str(caught.value)
    assert "SECRET" not in repr(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


async def test_a_refused_connection_is_a_delivery_error() -> None:
    async with HttpClient(LOCAL) as client:
        with pytest.raises(DeliveryError, match="Connection refused"):
            await client.post(f"http://127.0.0.1:{free_port()}/SECRET", b"{}", {})


async def test_a_host_that_does_not_accept_is_given_up_in_the_time_to_connect() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as stack:
        for _ in range(4):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(full.getsockname())
        async with HttpClient(LOCAL, DeliveryTimeouts(connect=0.2, total=10)) as client:
            with pytest.raises(DeliveryError, match=r"no connection within 0\.2 s"):
                await client.post(f"http://127.0.0.1:{full.getsockname()[1]}/", b"{}", {})


async def test_a_header_that_cannot_be_sent_is_a_delivery_error_that_does_not_repeat_it() -> None:
    async with serving() as server, HttpClient(LOCAL) as client:
        with pytest.raises(DeliveryError, match="header") as caught:
            await client.post(server.url, b"{}", {"authorization": "Bearer SECRET\r\nX: y"})

    assert "SECRET" not in str(caught.value)


async def test_a_forbidden_target_is_never_dialled() -> None:
    async with serving() as server, HttpClient(Guard()) as client:
        for host in ("127.0.0.1", "127.1", "localhost", "[::1]"):
            with pytest.raises(ForbiddenTarget):
                await client.post(f"https://{host}:{server.port}/", b"{}", {})

        assert server.heads == []


class Names:
    """A resolver whose answers change from one lookup to the next; the last one stays."""

    def __init__(self, *answers: Sequence[str] | Exception) -> None:
        self.answers = list(answers)
        self.lookups: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.lookups.append(host)
        await asyncio.sleep(0)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_a_name_is_dialled_at_the_checked_address_with_its_own_host_header() -> None:
    names = Names(["127.0.0.1"])
    async with serving() as server, HttpClient(Guard(loopback=True, resolver=names)) as client:
        for host in ("agent.test", "AGENT.test", "agent.test.", "münchen.test"):
            await client.post(f"http://{host}:{server.port}/x", b"{}", {})

        hosts = [re.search(rb"host: (\S+):", head, re.IGNORECASE) for head in server.heads]
        assert [found and found[1] for found in hosts] == [
            b"agent.test",
            b"agent.test",
            b"agent.test.",
            b"xn--mnchen-3ya.test",
        ]
        assert names.lookups == ["agent.test", "agent.test.", "xn--mnchen-3ya.test"]


async def test_a_name_that_changes_its_mind_is_not_dialled_unchecked() -> None:
    """The first answer is allowed, the second leads inside: DNS rebinding."""
    names = Names(["127.0.0.1"], ["127.0.0.2"])
    guard = Guard(["127.0.0.1"], resolver=names)
    async with serving(host="0.0.0.0") as server:
        url = f"http://rebinding.test:{server.port}/"
        async with HttpClient(guard, pool=PoolLimits(ttl=3600)) as client:
            for _ in range(3):
                await client.post(url, b"{}", {})
        assert (len(names.lookups), len(server.heads)) == (1, 3)

        names.answers = [["127.0.0.1"], ["127.0.0.2"]]
        async with HttpClient(guard, pool=PoolLimits(ttl=0)) as client:
            await client.post(url, b"{}", {})
            with pytest.raises(ForbiddenTarget, match=r"127\.0\.0\.2"):
                await client.post(url, b"{}", {})
        assert len(server.heads) == 4


async def test_a_name_with_one_good_and_one_bad_address_is_not_dialled() -> None:
    guard = Guard(["127.0.0.1"], resolver=Names(["127.0.0.1", "10.0.0.1"]))
    async with serving() as server, HttpClient(guard) as client:
        with pytest.raises(ForbiddenTarget):
            await client.post(f"http://two-faced.test:{server.port}/", b"{}", {})

        assert server.heads == []


async def test_the_name_is_looked_up_again_after_its_time_and_connections_outlive_that() -> None:
    names = Names(["127.0.0.1", "127.0.0.2"], ["127.0.0.2", "127.0.0.1"])
    async with serving(host="0.0.0.0") as server:
        async with HttpClient(Guard(loopback=True, resolver=names), pool=PoolLimits(ttl=0)) as client:
            for _ in range(4):
                await client.post(f"http://agent.test:{server.port}/", b"{}", {})

        assert len(names.lookups) == 4
        assert server.connections == 1


async def test_a_host_that_moved_is_followed_to_its_new_address() -> None:
    async with serving(host="127.0.0.1") as server:
        names = Names(["127.0.0.9"], ["127.0.0.1"])
        async with HttpClient(Guard(loopback=True, resolver=names)) as client:
            with pytest.raises(DeliveryError, match="refused"):
                await client.post(f"http://agent.test:{server.port}/", b"{}", {})

            assert await client.post(f"http://agent.test:{server.port}/", b"{}", {}) == HttpResponse(200)


async def test_an_address_that_does_not_accept_gives_way_to_one_that_does() -> None:
    names = Names(["127.0.0.9", "::1", "127.0.0.1"])
    async with serving(host="127.0.0.1") as server, HttpClient(Guard(loopback=True, resolver=names)) as client:
        assert await client.post(f"http://agent.test:{server.port}/", b"{}", {}) == HttpResponse(200)


async def test_an_address_that_stops_accepting_gives_way_at_the_next_attempt() -> None:
    names = Names(["127.0.0.1", "127.0.0.2"])
    async with HttpClient(Guard(loopback=True, resolver=names)) as client:
        async with serving(host="127.0.0.1") as first:
            url = f"http://agent.test:{first.port}/"
            assert await client.post(url, b"{}", {}) == HttpResponse(200)
        second = Server(answering(OK))
        listener = await asyncio.start_server(second.handle, "127.0.0.2", first.port)
        async with listener:
            answers = []
            for _ in range(3):  # one may die with the old connection, one finds the door closed
                with contextlib.suppress(DeliveryError):
                    answers.append(await client.post(url, b"{}", {}))

            assert answers[-1:] == [HttpResponse(200)]
            assert len(second.heads) == len(answers) < 3
        for task in list(second.handlers):
            task.cancel()


async def test_a_name_that_does_not_resolve_is_a_delivery_error_and_tried_again() -> None:
    names = Names(socket.gaierror(-2, "Name or service not known"), ["127.0.0.1"])
    async with serving() as server, HttpClient(Guard(loopback=True, resolver=names)) as client:
        with pytest.raises(DeliveryError, match="does not resolve"):
            await client.post(f"http://agent.test:{server.port}/", b"{}", {})

        assert await client.post(f"http://agent.test:{server.port}/", b"{}", {}) == HttpResponse(200)


async def test_a_name_server_that_is_silent_costs_only_the_time_to_connect() -> None:
    async def resolver(host: str, port: int) -> Sequence[str]:
        await asyncio.sleep(60)
        return []

    async with HttpClient(Guard(resolver=resolver), DeliveryTimeouts(connect=0.1)) as client:
        with pytest.raises(DeliveryError, match="too long to resolve"):
            await client.post("https://agent.test/", b"{}", {})


async def test_many_posts_share_one_lookup_and_a_cancelled_one_harms_nobody() -> None:
    release = asyncio.Event()
    lookups = 0

    async def resolver(host: str, port: int) -> Sequence[str]:
        nonlocal lookups
        lookups += 1
        await release.wait()
        return ["127.0.0.1"]

    async with serving() as server, HttpClient(Guard(loopback=True, resolver=resolver)) as client:
        url = f"http://agent.test:{server.port}/"
        posts = [asyncio.create_task(client.post(url, b"{}", {})) for _ in range(10)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        posts[0].cancel()
        release.set()
        answers = await asyncio.gather(*posts, return_exceptions=True)

        assert isinstance(answers[0], asyncio.CancelledError)
        assert answers[1:] == [HttpResponse(200)] * 9
        assert lookups == 1


async def test_the_least_recently_used_origin_loses_its_connections() -> None:
    names = Names(["127.0.0.1"])
    guard = Guard(loopback=True, resolver=names)
    async with serving() as server, HttpClient(guard, pool=PoolLimits(origins=2)) as client:
        for host in ("a", "b", "a", "c", "a", "b"):
            await client.post(f"http://{host}.test:{server.port}/", b"{}", {})

    assert names.lookups == ["a.test", "b.test", "c.test", "b.test"]


async def test_a_post_under_way_survives_the_loss_of_its_origins_place() -> None:
    arrived, release = asyncio.Event(), asyncio.Event()

    async def behave(writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await release.wait()
        writer.write(OK)

    guard = Guard(loopback=True, resolver=Names(["127.0.0.1"]))
    async with serving(behave) as slow, serving() as other, HttpClient(guard, pool=PoolLimits(origins=1)) as client:
        post = asyncio.create_task(client.post(f"http://slow.test:{slow.port}/", b"{}", {}))
        await arrived.wait()
        await client.post(f"http://other.test:{other.port}/", b"{}", {})
        release.set()

        assert await post == HttpResponse(200)


async def test_closing_ends_posts_under_way_and_refuses_new_ones() -> None:
    stuck = asyncio.Event()

    async def resolver(host: str, port: int) -> Sequence[str]:
        stuck.set()
        await asyncio.sleep(60)
        return []

    async with serving(silence) as server:
        client = HttpClient(Guard(loopback=True, resolver=resolver))
        posts = [
            asyncio.create_task(client.post(url, b"{}", {})) for url in (f"{server.url}/x", "https://stuck.test/SECRET")
        ]
        await stuck.wait()
        while not server.heads:
            await asyncio.sleep(0.01)
        await client.aclose()

        for answer in await asyncio.gather(*posts, return_exceptions=True):
            assert isinstance(answer, DeliveryError)
            assert "closed" in str(answer)
        with pytest.raises(DeliveryError, match="closed"):
            await client.post(f"{server.url}/x", b"{}", {})


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A certificate for agent.test, with its key, signed by nobody anyone trusts."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "agent.test")])
    now = datetime.now(UTC)
    cert = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("agent.test")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    path = tmp_path / "agent.pem"
    path.write_bytes(
        cert.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return path


async def test_https_greets_with_the_name_and_refuses_a_certificate_nobody_vouches_for(certificate: Path) -> None:
    greeted: list[str | None] = []
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    tls.sni_callback = lambda _socket, name, _context: greeted.append(name)
    guard = Guard(loopback=True, resolver=Names(["127.0.0.1"]))
    async with serving(tls=tls) as server, HttpClient(guard) as client:
        with pytest.raises(DeliveryError, match="invalid peer certificate") as caught:
            await client.post(f"https://agent.test:{server.port}/SECRET", b"{}", {})

        # The same host and port over http has a client of its own, which knows nothing of certificates.
        with pytest.raises(DeliveryError):
            await client.post(f"http://agent.test:{server.port}/SECRET", b"{}", {})
        with pytest.raises(DeliveryError, match="invalid peer certificate"):
            await client.post(f"https://agent.test:{server.port}/SECRET", b"{}", {})

    assert greeted == ["agent.test", "agent.test"]
    assert server.heads == []
    assert "SECRET" not in str(caught.value)


async def test_https_works_with_a_certificate_the_system_trusts(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    guard = Guard(loopback=True, resolver=Names(["127.0.0.1"]))
    async with serving(tls=tls) as server, HttpClient(guard) as client:
        assert await client.post(f"https://agent.test:{server.port}/x", b"{}", {}) == HttpResponse(200)
        assert server.header("host") == [f"agent.test:{server.port}"]
        with pytest.raises(DeliveryError, match="certificate"):
            await client.post(f"https://other.test:{server.port}/x", b"{}", {})


async def test_a_machine_without_trusted_certificates_can_still_speak_http(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    async with serving() as server, HttpClient(LOCAL) as client:
        assert await client.post(server.url, b"{}", {}) == HttpResponse(200)
        with pytest.raises(DeliveryError, match=r"https is not possible here.*certificates"):
            await client.post(f"https://127.0.0.1:{server.port}/", b"{}", {})


def page(body: bytes, head: bytes = b"200 OK") -> Behaviour:
    return answering(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body))


class TestFetching:
    async def test_a_page_is_fetched_with_its_status_and_the_headers_given(self) -> None:
        async with serving(page(b'{"name": "tools"}')) as server, HttpClient(LOCAL) as client:
            for _ in range(2):
                answer = await client.get(f"{server.url}/toolset?a=b", {"authorization": "Bearer x"}, limit=100)

            assert answer == (200, b'{"name": "tools"}')
            assert server.heads[0].startswith(b"GET /toolset?a=b HTTP/1.1\r\n")
            assert server.header("authorization") == ["Bearer x"]
            assert server.header("content-type") == server.header("accept-encoding") == []
            assert server.connections == 1

    @pytest.mark.parametrize("head", [b"404 Not Found", b"503 Busy", b"307 Elsewhere\r\nLocation: /admin"])
    async def test_every_status_is_an_answer_and_nothing_is_followed(self, head: bytes) -> None:
        async with serving(page(b"sorry", head)) as server, HttpClient(LOCAL) as client:
            assert await client.get(server.url, {}, limit=5) == (int(head[:3]), b"sorry")

            assert server.paths == ["/"]

    async def test_an_empty_page_is_one(self) -> None:
        async with serving() as server, HttpClient(LOCAL) as client:
            assert await client.get(server.url, {}, limit=0) == (200, b"")

    async def test_a_page_that_says_it_is_too_long_is_not_read(self) -> None:
        async def behave(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n")
            await asyncio.sleep(60)

        async with serving(behave) as server, HttpClient(LOCAL) as client:
            with pytest.raises(DeliveryError) as caught:
                await client.get(f"{server.url}/SECRET", {}, limit=100)

        assert str(caught.value) == f"{server.url} answered with more than 100 bytes."

    async def test_a_page_without_end_is_read_to_the_limit_and_no_further(self) -> None:
        async def behave(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"8\r\nabcdefgh\r\n")
                await writer.drain()

        async with serving(behave) as server, HttpClient(LOCAL) as client:
            with pytest.raises(DeliveryError, match=r"answered with more than 100 bytes\.$"):
                await client.get(server.url, {}, limit=100)
            while server.handlers:  # the connection is given up
                await asyncio.sleep(0.01)

    async def test_a_page_that_breaks_off_is_none(self) -> None:
        async def behave(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
            await writer.drain()
            writer.transport.abort()

        async with serving(behave) as server, HttpClient(LOCAL) as client:
            with pytest.raises(DeliveryError, match=re.escape(f"{server.url}: ")) as caught:
                await client.get(f"{server.url}/SECRET", {}, limit=100)

        assert "SECRET" not in repr(caught.value)

    async def test_a_page_that_stalls_is_given_up_in_the_time_there_is(self) -> None:
        async def behave(writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
            await asyncio.sleep(60)

        async with serving(behave) as server, HttpClient(LOCAL, DeliveryTimeouts(total=0.3)) as client:
            with pytest.raises(DeliveryError, match=r"no answer within 0\.3 s"):
                await client.get(server.url, {}, limit=100)

    async def test_a_page_nobody_serves_is_a_delivery_error_without_the_urls_secrets(self) -> None:
        async with HttpClient(LOCAL) as client:
            with pytest.raises(DeliveryError, match="Connection refused") as caught:
                await client.get(f"http://127.0.0.1:{free_port()}/SECRET", {}, limit=100)

        assert "SECRET" not in repr(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__suppress_context__

    async def test_a_forbidden_target_is_never_asked(self) -> None:
        async with serving() as server, HttpClient(Guard()) as client:
            for host in ("127.0.0.1", "localhost"):
                with pytest.raises(ForbiddenTarget):
                    await client.get(f"https://{host}:{server.port}/", {}, limit=100)

            assert server.heads == []
