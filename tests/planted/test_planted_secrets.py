"""Secrets are planted wherever a tool server meets any, and looked for wherever it leaves something behind.

A real server, a real OAuth provider, a real sink. Some secrets are nobody's business but the server's: they must be in no message, log or
file. Others belong into messages (what a tool is told and says) but not into logs or files. Every secret is one word, so that it is not
found by accident; and some are looked for where they belong, or the test would prove nothing.
"""

import base64
import contextlib
import hashlib
import hmac
import json
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rapkit.delivery.signatures import headers as sign
from tests.crash.processes import Process, free_port
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.provider_server import ProviderServer, provider_running
from tests.server.served_toolset import Reply, exchange, invocation
from tests.server.sink import Post, Sink, listening

HERE = Path(__file__).parent


def whsec() -> str:
    return "whsec_" + base64.b64encode(secrets.token_bytes(32)).decode()


@dataclass
class Planted:
    """What nobody may find: `ours` in nothing that leaves the server or stays behind, `theirs` in no log and no file."""

    agent_token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    caller_secret: str = field(default_factory=whsec)
    callback_secret: str = field(default_factory=whsec)
    source_secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    master_key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    ours: set[str] = field(default_factory=set)
    theirs: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ours |= {self.agent_token, self.caller_secret, self.callback_secret, self.source_secret, self.master_key}

    def theirs_new(self) -> str:
        word = secrets.token_urlsafe(18)
        self.theirs.add(word)
        return word


class Server:
    """The server's process, and the two ways in which callers show who they are."""

    def __init__(self, process: Process, planted: Planted) -> None:
        self.process = process
        self._planted = planted

    async def post(self, path: str, message: object, **headers: str) -> Reply:
        body = json.dumps(message).encode()
        given = {"Host": f"127.0.0.1:{self.process.port}", "Content-Type": "application/json", **headers}
        lines = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        head = f"POST {path} HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n"
        return await exchange(self.process.port, head.encode() + body)

    async def call(self, message: object, path: str = "/invoke") -> None:
        reply = await self.post(path, message, Authorization=f"Bearer {self._planted.agent_token}")
        assert reply.status == 200, reply.body

    async def call_signed(self, message: object, now: float) -> None:
        stamp = sign(f"msg_{secrets.token_hex(4)}", now, json.dumps(message).encode(), [self._planted.caller_secret])
        assert (await self.post("/invoke", message, **stamp)).status == 200

    async def tell(self, message: object) -> None:
        signature = hmac.new(self._planted.source_secret.encode(), json.dumps(message).encode(), hashlib.sha256)
        stamp = {"X-Hub-Signature-256": f"sha256={signature.hexdigest()}", "X-GitHub-Delivery": secrets.token_hex(8)}
        assert (await self.post("/hooks/secrets", message, **stamp)).status == 200

    async def get(self, path: str) -> Reply:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.process.port}\r\nAuthorization: Bearer {self._planted.agent_token}\r\n\r\n"
        return await exchange(self.process.port, head.encode())


@contextlib.asynccontextmanager
async def serving(folder: Path, provider: ProviderServer, planted: Planted) -> AsyncIterator[Server]:
    planted.ours.add(provider.client_secret)
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "rapkit",
        "serve",
        str(HERE / "tools.py"),
        "--port",
        str(port),
        "--log-level",
        "debug",
    ]
    environment = {
        "PROVIDER_URL": provider.url,
        "CLIENT_SECRET": provider.client_secret,
        "AGENT_TOKEN": planted.agent_token,
        "CALLER_SECRET": planted.caller_secret,
        "CALLBACK_SECRET": planted.callback_secret,
        "SOURCE_SECRET": planted.source_secret,
        "RAPKIT_SECRET_KEY": planted.master_key,
    }
    process = Process("server", command, folder, port, environment)
    process.start()
    try:
        await process.ready()
        yield Server(process, planted)
    finally:
        if process.running:
            await process.kill()


async def of_type(sink: Sink, kind: str, id: str) -> Post:
    """The first message of a kind for a call."""
    count = 0
    while True:
        posts = await sink.received(count)
        for post in posts:
            message = post.message
            if message["type"] == kind and id in (message.get("id"), message.get("tool_call_id")):
                return post
        count = len(posts) + 1


def holes(where: dict[str, bytes], words: set[str]) -> list[tuple[str, str]]:
    """Which words are found where, as they are or as base64 or a URL would have them."""
    found = []
    for word in words:
        plain = word.encode()
        spellings = {plain, base64.b64encode(plain).rstrip(b"="), plain.hex().encode()}
        found += [(word, place) for place, data in where.items() if any(each in data for each in spellings)]
    return found


def files_of(folder: Path) -> dict[str, bytes]:
    return {
        str(file.relative_to(folder)): file.read_bytes() + file.name.encode()
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".log"
    }


async def test_planted_secrets_are_found_in_no_log_no_message_and_no_file(tmp_path: Path) -> None:
    """SUB-9, OAU-2, INV-16"""
    planted = Planted()
    pages: list[str] = []
    async with provider_running() as provider, listening() as sink, serving(tmp_path, provider, planted) as server:

        def call(operation: str, **arguments: str) -> dict[str, Any]:
            return invocation(
                f"{sink.url}/{planted.theirs_new()}?key={planted.theirs_new()}", operation, arguments=arguments
            )

        # A choice, answered: arguments, state, view, prompt, labels and result are all secret.
        keep = call("keep", secret=planted.theirs_new())
        await server.call(keep)
        choice = (await of_type(sink, "user_choice", keep["id"])).message
        planted.theirs.add(urlsplit(choice["response_url"]).path.rsplit("/", 1)[1])
        assert (
            await server.post(urlsplit(choice["response_url"]).path, {"id": keep["id"], "selected": 0})
        ).status == 200
        assert (await of_type(sink, "tool_result", keep["id"])).text == keep["arguments"]["secret"]

        # Consent, given, denied, and waited for.
        for number, allow in enumerate((True, False, None)):
            act = call("act")
            act["user_id"] = f"user {number}"
            await server.call_signed(act, provider.now())
            auth_url = (await of_type(sink, "oauth", act["id"])).message["auth_url"]
            planted.theirs |= {
                query[0] for name, query in parse_qs(urlsplit(auth_url).query).items() if name == "state"
            }
            if allow is not None:
                pages.append((await Browser().authorise(auth_url, allow=allow)).text)
                text = (await of_type(sink, "tool_result", act["id"])).text
                assert text.startswith("a token of ") if allow else text.startswith("Error: provider")
        planted.ours |= provider.seen

        # Events, from a generator and from a webhook; a failure; an undeliverable result.
        watch, word = call("watch", secret=planted.theirs_new()), planted.theirs_new()
        await server.call(watch)
        await of_type(sink, "subscription_event", watch["id"])
        hear = call("hear", secret=word)
        await server.call(hear)
        await of_type(sink, "tool_result", hear["id"])
        await server.tell({"topic": word, "told": f"psst {word}"})
        await of_type(sink, "subscription_event", hear["id"])
        fail = call("fail", secret=planted.theirs_new())
        await server.call(fail)
        assert "this is for the log alone" not in (await of_type(sink, "tool_result", fail["id"])).text
        lost = invocation(
            f"http://127.0.0.1:9/{planted.theirs_new()}", "fail", arguments={"secret": planted.theirs_new()}
        )
        await server.call(lost)
        await server.call({"thread_id": "thread_1", "tool_call_id": watch["id"]}, "/cancel_tool_call")
        assert (await server.post("/invoke", keep, Authorization=f"Bearer {planted.agent_token}x")).status == 401
        metrics = (await server.get("/metrics")).body

        running = files_of(tmp_path)  # with everything that waits
        await server.process.kill()
        server.process.start()
        await server.process.ready()
        await server.process.stop()
        stopped = files_of(tmp_path)

    log = server.process.log()
    listed = subprocess.run(
        [sys.executable, "-m", "rapkit", "outbox", "list", "--waiting", "--store", "sqlite:///vault.db"],
        cwd=tmp_path,
        env={"RAPKIT_SECRET_KEY": planted.master_key, "PATH": ""},
        capture_output=True,
        check=True,
    ).stdout
    messages = {f"message {number}": post.body + repr(post.headers).encode() for number, post in enumerate(sink.posts)}
    told = {"log": log.encode(), "metrics": metrics, "outbox list": listed, "pages": "".join(pages).encode()}

    assert "this is for the log alone" in log
    assert len(planted.ours) >= 10
    assert len(planted.theirs) > 15
    assert holes(messages, {keep["arguments"]["secret"], word}), "what belongs into messages is there"
    assert any(name.startswith("vault.db") for name in running)
    assert holes(told | running | stopped, planted.ours | planted.theirs) == []
    assert holes(messages, planted.ours) == []
