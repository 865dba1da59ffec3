"""The servers that are fuzzed: the real command in processes of their own, and whatever they say in their logs."""

import itertools
import json
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qs, urlsplit

from rapkit.cli.call.callback_listener import CallbackListener
from rapkit.cli.call.keyboard import Typed
from rapkit.protocol import Callback, OAuthRequest, SubscriptionEvent, ToolResult, UserChoice, ViewUpdate
from tests.crash.processes import Process, complaints_in, free_port
from tests.fuzz.signatures import CALLER_SECRET, GITHUB_SECRET, STANDARD_SECRET, STRIPE_SECRET, Signed, standard
from tests.fuzz.wire import DEADLINE, Answer, ask, request, talk

HERE = Path(__file__).parent
FEW_STRANGERS = 5
"""Requests a second of strangers that the server of signed callers takes."""

C = TypeVar("C", ToolResult, SubscriptionEvent, OAuthRequest, UserChoice)


def fuzzed_server(folder: Path, **environment: str) -> Process:
    port = free_port()
    store = f"sqlite:///{folder / 'fuzzed.db'}"
    command = [sys.executable, "-m", "rapkit", "serve", str(HERE / "tools.py"), "--port", str(port), "--store", store]
    secrets = {
        "FUZZ_GITHUB_SECRET": GITHUB_SECRET,
        "FUZZ_STRIPE_SECRET": STRIPE_SECRET,
        "FUZZ_STANDARD_SECRET": STANDARD_SECRET,
    }
    return Process("server", [*command, "--log-format", "json"], folder, port, {**secrets, **environment})


def signed_server(folder: Path) -> Process:
    """One that serves only whoever signs, and few strangers."""
    return fuzzed_server(folder, FUZZ_CALLER_SECRET=CALLER_SECRET, FUZZ_STRANGERS=str(FEW_STRANGERS))


@dataclass(frozen=True)
class Sent:
    """Whose answer it is: the ids of an invocation."""

    group_id: str
    id: str

    @classmethod
    def of(cls, message: Mapping[str, Any]) -> "Sent":
        return cls(message["group_id"], message["id"])

    def __str__(self) -> str:
        return f"{self.group_id!r}/{self.id!r}"


@dataclass
class Target:
    """A server, and a listener for what it calls back. With `signs` every request is signed, as Standard Webhooks are."""

    process: Process
    listener: CallbackListener
    signs: bool = False
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _came: dict[Sent, list[Callback]] = field(default_factory=lambda: defaultdict(list))
    _secrets: list[str] = field(default_factory=list)
    _read: int = 0
    _pid: int = 0

    def __post_init__(self) -> None:
        self._pid = self.process.pid
        self._callback_path = urlsplit(self.listener.url).path

    @property
    def port(self) -> int:
        return self.process.port

    @property
    def folder(self) -> Path:
        return self.process.folder

    def invocation(self, **changes: Any) -> dict[str, Any]:
        """A good one, with ids of its own unless they are given."""
        n = next(self._numbers)
        good = {
            "operation": "echo",
            "arguments": {"text": f"hello {n}"},
            "id": f"call_{n}",
            "group_id": f"thread_{n}",
            "callback_url": self.listener.url,
        }
        return {**good, **changes}

    def post(self, path: str, body: bytes, headers: Mapping[str, str | None] | None = None) -> Answer:
        """Send a body; signed if callers have to sign, unless the headers say otherwise."""
        return ask(self.port, request("POST", path, body, {**self._signature(body), **(headers or {})}))

    def _signature(self, body: bytes) -> Signed:
        return standard(body, secret=CALLER_SECRET) if self.signs else {}

    def invoke(self, operation: str, /, **arguments: Any) -> Sent:
        """Send a good invocation."""
        return self.send(self.invocation(operation=operation, arguments=arguments))

    def send(self, message: dict[str, Any], headers: Mapping[str, str | None] | None = None) -> Sent:
        """Send an invocation that must be accepted."""
        assert self.post("/invoke", json.dumps(message).encode(), headers).status == 200
        return Sent.of(message)

    def cancel(self, call: Sent) -> None:
        notice = {"thread_id": call.group_id, "tool_call_id": call.id}
        assert self.post("/cancel_tool_call", json.dumps(notice).encode()).status == 200

    def close(self, thread: str) -> None:
        assert self.post("/close_thread", json.dumps({"thread_id": thread}).encode()).status == 200

    def first(self, call: Sent) -> Callback:
        """The first message about a call, whatever it is."""
        while not self._came[call]:
            self._listen(call)
        return self._came[call][0]

    def result(self, call: Sent) -> ToolResult:
        """The result of a call, whenever it came."""
        return self._find(call, ToolResult)

    def question(self, call: Sent) -> UserChoice:
        """What the user is asked."""
        return self._find(call, UserChoice)

    def link(self, call: Sent) -> OAuthRequest:
        """Where the user is sent."""
        return self._find(call, OAuthRequest)

    def events(self, call: Sent) -> list[str]:
        """All events of a subscription, up to the final one."""
        while not any(isinstance(each, SubscriptionEvent) and each.final for each in self._came[call]):
            self._listen(call)
        return [each.text for each in self._came[call] if isinstance(each, SubscriptionEvent)]

    def _find(self, call: Sent, kind: type[C]) -> C:
        while True:
            for message in self._came[call]:
                if isinstance(message, kind):
                    return message
                # Nothing else comes after it, so that waiting would be in vain.
                assert not isinstance(message, ToolResult), f"{call} was answered: {message.text}"
            self._listen(call)

    def _listen(self, call: Sent) -> None:
        message = self.listener.next(DEADLINE)
        assert message is not None, f"nothing comes for {call}, and there was {self._came[call]}"
        if isinstance(message, ViewUpdate | Typed):
            return
        id = message.tool_call_id if isinstance(message, SubscriptionEvent) else message.id
        self._came[Sent(message.group_id, id)].append(message)

    def asks(self, **arguments: Any) -> tuple[Sent, str]:
        """A call that waits for an answer, and the token with which it can be given."""
        call = self.invoke("ask", **arguments)
        return call, self.token(self.question(call))

    def token(self, question: UserChoice) -> str:
        token = urlsplit(question.response_url).path.removeprefix("/answer/")
        self._secrets.append(token)
        return token

    def acts(self) -> tuple[Sent, str]:
        """A call that waits for consent, and the state with which the user comes back."""
        call = self.invoke("act")
        return call, self.state(self.link(call))

    def state(self, link: OAuthRequest) -> str:
        (state,) = parse_qs(urlsplit(link.auth_url).query)["state"]
        self._secrets.append(state)
        return state

    def answer(self, token: str, id: str, selected: int) -> Answer:
        """Answer a question. Whoever is told to come back later does that."""
        body = json.dumps({"id": id, "selected": selected}).encode()
        while True:
            answer = ask(self.port, request("POST", f"/answer/{token}", body))
            if answer.status != 503:
                return answer
            time.sleep(int(answer.headers["retry-after"]))

    def check(self) -> None:
        """It is alive, has nothing to complain about, and serves a good call, a choice and a subscription."""
        good = [
            self.invocation(),
            self.invocation(operation="ask", arguments={}),
            self.invocation(operation="count", arguments={"last": 2}),
        ]
        raw = b"".join(request(body=body, headers=self._signature(body)) for body in map(_dumped, good))
        assert [answer.status for answer in talk(self.port, raw, expect=3)] == [200, 200, 200]
        plain, choice, subscription = map(Sent.of, good)
        assert self.answer(self.token(self.question(choice)), choice.id, 1).status == 200
        assert self.result(plain).text == good[0]["arguments"]["text"]
        assert self.result(choice).text == "right"
        assert self.events(subscription) == ["1", "2"]
        assert self.result(subscription).subscription
        assert ask(self.port, request("GET", "/readyz")).status == 200
        assert self.process.running
        assert self.process.pid == self._pid
        self._check_log()

    def _check_log(self) -> None:
        """What was logged since the last time: nothing to complain about, and no secrets."""
        with (self.folder / "server.log").open("rb") as log:
            log.seek(self._read)
            lines = log.read()
        self._read += len(lines)
        said = lines.decode(errors="replace")
        complaints = complaints_in(said)
        assert not complaints, complaints
        told = [secret for secret in (self._callback_path, *self._secrets) if secret in said]
        assert not told, f"{told} in {said}"
        self._secrets.clear()


def _dumped(message: Mapping[str, Any]) -> bytes:
    return json.dumps(message).encode()
