"""AWS Signature Version 4 and client certificates in both directions, with plain botocore and the standard library at the other end."""

import json
import os
import socket
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from botocore.auth import SigV4Auth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]
from cryptography import x509

from tests.certificates import Authority, Pair
from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.foreign_server import ForeignServer, result
from tests.interop.http_peer import PATIENCE, Answer, Json, Received
from tests.interop.processes import OurServer, free_port
from tests.interop.test_basics import PLAN, TOOLS

ID = "AKIDEXAMPLE"
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEY = ["--aws-key", f"agent={ID}:env:AGENT_SECRET_KEY"]
ENVIRONMENT = {"AGENT_SECRET_KEY": SECRET}


def post_signed(url: str, message: Json, secret: str = SECRET, **headers: str) -> int:
    """POST as botocore signs it and urllib sends it."""
    body = json.dumps(message).encode()
    request = AWSRequest("POST", url, data=body, headers={"Content-Type": "application/json", **headers})
    SigV4Auth(Credentials(ID, secret), "execute-api", "eu-central-1").add_auth(request)
    return send(urllib.request.Request(url, body, dict(request.headers.items())))


def send(request: urllib.request.Request, tls: ssl.SSLContext | None = None) -> int:
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=tls) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_a_foreign_runtime_is_known_by_its_aws_signature(serve: Serve, join: Join) -> None:
    """Item 18 (TRA-3): what plain botocore signs is taken; nothing else is, notices included."""
    server = serve(TOOLS, KEY, ENVIRONMENT)
    runtime: ForeignRuntime = join(ForeignRuntime(server.url))
    call = runtime.invocation("greet", {"name": "Ada"})

    assert post_signed(f"{server.url}/invoke", call, secret="not-the-secret-of-that-key") == 401
    assert post_signed(f"{server.url}/invoke", call, **{"X-Amz-Content-SHA256": "UNSIGNED-PAYLOAD"}) == 401
    assert runtime.send("/invoke", call)[0] == 401
    assert runtime.close_thread() == 401
    assert post_signed(f"{server.url}/invoke", call) == 200

    assert runtime.result_of(call)["text"] == "Hello, Ada."
    assert post_signed(f"{server.url}/close_thread", {"thread_id": "thread-1"}) == 200
    assert "its AWS signature is not good" in server.log()
    assert SECRET not in server.log()


class SigV4Server(ForeignServer):
    """A foreign server that answers only what botocore would have signed in the same way."""

    def answer(self, request: Received) -> Answer:
        return super().answer(request) if self._is_signed(request) else Answer(403)

    def _is_signed(self, request: Received) -> bool:
        given = request.headers.get("authorization", "")
        _, _, names = given.partition("SignedHeaders=")
        headers = {name: request.headers[name] for name in names.partition(",")[0].split(";") if name}
        again = AWSRequest(request.method, f"{self.url}{request.path}", data=request.body, headers=headers)
        again.context["timestamp"] = request.headers.get("x-amz-date", "")
        signer = SigV4Auth(Credentials(ID, SECRET), "lambda", "eu-central-1")
        ours = signer.signature(signer.string_to_sign(again, signer.canonical_request(again)), again)
        return given.endswith(f"Signature={ours}") and f"Credential={ID}/" in given


@pytest.mark.parametrize("explicit", [True, False], ids=["given", "found by botocore"])
def test_our_runtime_signs_all_it_sends_to_a_server(up: Up, join: Join, explicit: bool, tmp_path: Path) -> None:
    """Item 18 (TRA-3): discovery, invocations and notices; a retried attempt is signed anew."""
    server: SigV4Server = join(SigV4Server({"add": lambda call: [result(call, "3")]}, statuses={"/run": 503}))
    keys = {"access_key": "env:TOOLS_ID", "secret_key": "env:TOOLS_SECRET"} if explicit else {}
    variables = ("TOOLS_ID", "TOOLS_SECRET") if explicit else ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
    environment = dict(zip(variables, (ID, SECRET), strict=True)) | {"AWS_CONFIG_FILE": str(tmp_path / "none")}
    sigv4 = {"region": "eu-central-1", "service": "lambda", **keys}
    runtime = up(PLAN, [{"url": server.url}], tables={"servers.sigv4": sigv4}, environment=environment)

    thread = runtime.thread("add")
    first = server.wait(lambda request: request.path == "/run")[0]
    server.statuses.clear()
    runtime.until(thread, "It is 3.")
    runtime.close(thread)
    server.notices("/close_thread", 1)

    attempts = server.received(lambda request: request.path == "/run")
    assert len(attempts) > 1
    assert all(server._is_signed(request) for request in server.received())
    assert attempts[-1].body == first.body


# Client certificates


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def trusting(authority: Authority, pair: Pair | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.ca)
    if pair is not None:
        context.load_cert_chain(pair.cert, pair.key)
    return context


class TlsRuntime(ForeignRuntime):
    """Sends with a client certificate."""

    tls: ssl.SSLContext

    def send(self, path: str, message: Any, headers: Any = None) -> tuple[int, bytes]:
        body = json.dumps(message).encode()
        sent = {"Content-Type": "application/json", **(headers or {})}
        return send(urllib.request.Request(f"{self.server}{path}", body, sent), self.tls), b""


Secure = Callable[..., OurServer]


@pytest.fixture
def secure(serve: Serve, authority: Authority) -> Secure:
    """`rapkit serve` over HTTPS for callers with a certificate of the authority."""
    pair = authority.server()

    def start(source: str = TOOLS, *options: str) -> OurServer:
        files = ["--tls-cert", pair.cert, "--tls-key", pair.key, "--client-ca", authority.ca]
        return serve(source, [*files, *options], tls=trusting(authority, authority.sign("probe", "probe")))

    return start


def test_a_foreign_runtime_is_known_by_its_client_certificate(secure: Secure, join: Join, authority: Authority) -> None:
    """Item 18 (TRA-3): the caller is who the certificate says; cancellations of another caller do nothing."""
    server = secure()
    runtime: TlsRuntime = join(TlsRuntime(server.url))
    runtime.tls = trusting(authority, authority.sign("agent", "agent"))

    call = runtime.call("greet", {"name": "Ada"})

    assert runtime.result_of(call)["text"] == "Hello, Ada."
    assert server.url.startswith("https://")
    with urllib.request.urlopen(f"{server.url}/.well-known/rap-toolset", context=runtime.tls) as response:
        assert json.loads(response.read())["endpoint"] == f"{server.url}/invoke"


def test_without_a_certificate_of_the_authority_there_is_no_connection(
    secure: Secure, authority: Authority, tmp_path: Path
) -> None:
    server = secure()
    (tmp_path / "strange").mkdir()
    stranger = Authority(tmp_path / "strange").sign("stranger", "agent")

    for pair in (None, stranger):
        with pytest.raises((OSError, urllib.error.URLError)):
            send(urllib.request.Request(f"{server.url}/healthz"), trusting(authority, pair))


def test_only_certificates_with_certain_names_are_callers_if_these_are_named(
    secure: Secure, join: Join, authority: Authority
) -> None:
    server = secure(TOOLS, "--client-certificate", "agent=spiffe://example.com/agent")
    runtime: TlsRuntime = join(TlsRuntime(server.url))
    call = runtime.invocation("greet", {"name": "Ada"})
    # A common name does not count where there are alternative names: authorities check these.
    pretender = authority.sign("pretender", "spiffe://example.com/agent", x509.DNSName("pretender.test"))
    good = authority.sign("good", "", x509.UniformResourceIdentifier("spiffe://example.com/agent"))

    runtime.tls = trusting(authority, pretender)
    assert runtime.send("/invoke", call)[0] == 401
    runtime.tls = trusting(authority, good)
    assert runtime.send("/invoke", call)[0] == 200
    assert runtime.result_of(call)["text"] == "Hello, Ada."


def test_clients_that_are_slow_with_their_handshake_hold_up_nobody(secure: Secure, authority: Authority) -> None:
    server = secure()
    slow = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    try:
        for connection in slow[:25]:
            connection.sendall(b"\x16\x03\x01")  # a handshake begins like this, and does not go on
        tls = trusting(authority, authority.sign("agent", "agent"))
        assert send(urllib.request.Request(f"{server.url}/healthz"), tls) == 200
    finally:
        for connection in slow:
            connection.close()


WEBHOOK = """
    from rapkit import Delivery, Toolset

    tools = Toolset("greetings")

    @tools.tool
    async def greet(name: str) -> str:
        return f"Hello, {name}."

    @tools.webhook("/hook", verify=lambda delivery: True)
    async def hook(delivery: Delivery) -> None:
        pass
"""


def test_webhooks_need_no_client_certificate_and_calls_do(secure: Secure, join: Join, authority: Authority) -> None:
    server = secure(WEBHOOK)
    runtime: TlsRuntime = join(TlsRuntime(server.url))
    runtime.tls = trusting(authority, None)

    assert runtime.send("/hook", {})[0] == 200
    assert runtime.send("/invoke", runtime.invocation("greet", {"name": "Ada"}))[0] == 401


class TlsServer(ForeignServer):
    """A foreign server that wants client certificates."""

    def __init__(self, *given: Any, context: ssl.SSLContext, **more: Any) -> None:
        super().__init__(*given, **more)
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)

    @property
    def url(self) -> str:
        return super().url.replace("http://", "https://")


def test_our_runtime_shows_a_client_certificate(up: Up, join: Join, authority: Authority) -> None:
    """Item 18 (TRA-3): to a foreign server that demands one, for discovery, invocations and notices."""
    own, pair = authority.server(), authority.sign("agent", "agent")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert, own.key)
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    server: TlsServer = join(TlsServer({"add": lambda call: [result(call, "3")]}, context=context))
    files = {"cert": pair.cert, "key": pair.key, "ca": authority.ca}
    runtime = up(PLAN, [{"url": server.url}], tables={"servers.client_certificate": files})

    thread = runtime.thread("add")
    runtime.until(thread, "It is 3.")
    runtime.close(thread)

    server.notices("/close_thread", 1)


def test_our_runtime_and_our_server_know_each_other_by_certificates(
    secure: Secure, up: Up, authority: Authority
) -> None:
    """Item 18: both sides of ours together."""
    server = secure()
    pair = authority.sign("agent", "agent")
    files = {"cert": pair.cert, "key": pair.key, "ca": authority.ca}
    plan = """
        - user: greet
          calls: [greet: {name: Ada}]
        - answer: greet
          say: "{answer}"
    """
    runtime = up(plan, [{"url": server.url}], tables={"servers.client_certificate": files})

    runtime.until(runtime.thread("greet"), "Hello, Ada.")


# The command line


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "rapkit", *words],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def test_commands_sign_and_show_certificates(
    serve: Serve, secure: Secure, authority: Authority, tmp_path: Path
) -> None:
    """Item 18: `rapkit call` and `rapkit inspect`, wherever they take a token."""
    signed, certified = serve(TOOLS, KEY, ENVIRONMENT), secure()
    pair = authority.sign("agent", "agent")
    credentials = {"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_CONFIG_FILE": str(tmp_path / "none")}
    files = ["--cert", pair.cert, "--key", pair.key, "--ca", authority.ca]

    refused = run(tmp_path, "call", signed.url, "greet", "name=Ada")
    called = run(tmp_path, "call", signed.url, "greet", "name=Ada", "--sigv4", "eu-central-1/lambda", **credentials)
    shown = run(tmp_path, "call", certified.url, "greet", "name=Ada", *files)
    inspected = run(tmp_path, "inspect", certified.url, *files)

    assert refused.returncode == 2
    assert "AWS Signature Version 4" in refused.stderr
    assert (called.returncode, called.stdout) == (0, "Hello, Ada.\n")
    assert (shown.returncode, shown.stdout) == (0, "Hello, Ada.\n")
    assert "greet" in inspected.stdout


def test_doctor_knows_whether_a_server_takes_the_signature(serve: Serve, tmp_path: Path) -> None:
    """Item 18: the same servers, with the right secret and with a wrong one."""
    server = serve(TOOLS, KEY, ENVIRONMENT)
    (tmp_path / "plan.yaml").write_text("- say: Fine.\n")
    (tmp_path / "rapkit.toml").write_text(
        f'[agent]\nmodel = "scripted:plan.yaml"\nport = {free_port()}\n[[servers]]\nurl = "{server.url}"\n'
        f'[servers.sigv4]\nregion = "eu-central-1"\naccess_key = "{ID}"\nsecret_key = "env:TOOLS_SECRET"\n'
    )

    right = run(tmp_path, "doctor", TOOLS_SECRET=SECRET)
    wrong = run(tmp_path, "doctor", TOOLS_SECRET="not-the-secret-of-that-key")

    assert "greetings, 1 tool" in right.stdout + right.stderr
    assert "calls are answered 401" not in right.stdout + right.stderr
    assert "calls are answered 401. Are the AWS credentials" in " ".join((wrong.stdout + wrong.stderr).split())
