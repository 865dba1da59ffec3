"""Client certificates: shown on connections to a pinned address, renewed while we run, and refused at the start if they are none."""

import asyncio
import ssl
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.certificates import Authority, Pair

from rapkit import ClientCertificate, Server, SigV4
from rapkit.delivery.guard import Guard
from rapkit.delivery.http_client import HttpClient, PoolLimits
from rapkit.errors import ConfigError, DeliveryError
from rapkit.http.certificates import CertificateNames, peer_names
from rapkit.runtime.agent import Agent


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


class Peer:
    """A TLS server that wants a certificate, and notes whose it was and which host was asked for."""

    def __init__(self) -> None:
        self.port = 0
        self.callers: list[tuple[str, ...]] = []
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.callers.append(peer_names(writer.get_extra_info("ssl_object").getpeercert()))
        self.heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()


@asynccontextmanager
async def peer(authority: Authority) -> AsyncIterator[Peer]:
    own = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own.cert, own.key)
    context.load_verify_locations(authority.ca)
    context.verify_mode = ssl.CERT_REQUIRED
    found = Peer()
    async with await asyncio.start_server(found.serve, "127.0.0.1", 0, ssl=context) as server:
        found.port = server.sockets[0].getsockname()[1]
        yield found


async def here(_host: str, _port: int) -> list[str]:
    return ["127.0.0.1"]


def client(port: int, pair: Pair, authority: Authority, ttl: float = 60.0) -> HttpClient:
    guard = Guard([f"https://tools.test:{port}"], resolver=here)
    return HttpClient(guard, pool=PoolLimits(ttl=ttl), certificate=ClientCertificate(pair.cert, pair.key, authority.ca))


async def test_a_certificate_is_shown_to_a_pinned_address_under_the_right_name(authority: Authority) -> None:
    async with peer(authority) as tools, client(tools.port, authority.sign("agent", "agent"), authority) as http:
        answer = await http.post(f"https://tools.test:{tools.port}/invoke", b"{}", {})

    assert answer.status == 200
    assert tools.callers == [("agent",)]
    assert f"tools.test:{tools.port}".encode() in tools.heads[0]


async def test_a_certificate_that_was_renewed_is_shown_without_a_restart(authority: Authority) -> None:
    pair = authority.sign("agent", "agent")
    async with peer(authority) as tools, client(tools.port, pair, authority, ttl=0.0) as http:
        url = f"https://tools.test:{tools.port}/invoke"
        await http.post(url, b"{}", {})
        authority.sign("agent", "renewed")
        await http.post(url, b"{}", {})
        Path(pair.key).unlink()
        with pytest.raises(DeliveryError, match="cannot be read"):
            await http.post(url, b"{}", {})

    assert tools.callers == [("agent",), ("renewed",)]


def test_files_that_hold_no_certificate_are_refused_at_the_start(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.sign("agent", "agent"), authority.sign("other", "other")
    (tmp_path / "empty.pem").write_text("nothing")
    for cert, key, ca in (
        (str(tmp_path / "missing.pem"), None, None),
        (str(tmp_path / "empty.pem"), None, None),
        (pair.cert, None, None),
        (pair.cert, other.key, None),
        (pair.cert, pair.key, str(tmp_path / "empty.pem")),
    ):
        with pytest.raises(ConfigError, match=r"cannot be used as a certificate|holds no certificates to trust"):
            ClientCertificate(cert, key, ca)


def test_a_certificate_of_version_1_is_refused_with_how_to_make_one_of_version_3(
    authority: Authority, tmp_path: Path
) -> None:
    def openssl(*words: str) -> None:
        subprocess.run(["openssl", *words], cwd=tmp_path, check=True, capture_output=True)

    new_key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    signed_by = ("-CA", "own.pem", "-CAkey", "own.key", "-CAcreateserial", "-days", "2")
    openssl("req", "-x509", *new_key, "-subj", "/CN=own", "-keyout", "own.key", "-out", "own.pem")
    openssl("req", *new_key, "-subj", "/CN=agent", "-keyout", "agent.key", "-out", "agent.csr")
    (tmp_path / "agent.ext").write_text("extendedKeyUsage=clientAuth\n")
    openssl("x509", "-req", "-in", "agent.csr", *signed_by, "-out", "v1.pem")
    openssl("x509", "-req", "-in", "agent.csr", *signed_by, "-extfile", "agent.ext", "-out", "v3.pem")
    key = str(tmp_path / "agent.key")

    with pytest.raises(ConfigError, match=r"v1\.pem is an X\.509 certificate of version 1.* -extfile"):
        ClientCertificate(str(tmp_path / "v1.pem"), key)
    ClientCertificate(str(tmp_path / "v3.pem"), key)


def test_what_cannot_go_together_is_refused(authority: Authority) -> None:
    certificate = ClientCertificate(*_files(authority.sign("agent", "agent")))
    another = ClientCertificate(*_files(authority.sign("another", "another")))

    with pytest.raises(ConfigError, match="Use https"):
        Server("http://127.0.0.1:8001", auth=certificate)
    with pytest.raises(ConfigError, match="both are sent as Authorization"):
        Server("https://tools.test", token="a-token", auth=SigV4("eu-central-1"))
    with pytest.raises(ConfigError, match="both access_key and secret_key"):
        SigV4("eu-central-1", access_key="AKIDEXAMPLE")
    with pytest.raises(ConfigError, match="is not an AWS region"):
        SigV4("somewhere/else")
    with pytest.raises(ConfigError, match="different client certificates"):
        Agent(
            model="test",
            servers=[
                Server("https://tools.test/a", auth=certificate),
                Server("https://tools.test:443/b", auth=another),
            ],
        )


def _files(pair: Pair) -> tuple[str, str]:
    return pair.cert, pair.key


def test_a_name_that_cannot_name_a_caller_is_none() -> None:
    anyone, named = CertificateNames({}), CertificateNames({"spiffe://example.com/agent": "agent"})

    def scope(*names: str) -> dict[str, object]:
        return {"state": {"rapkit.peer_names": names}}

    assert anyone.identify(scope("agent")) == "agent"
    assert anyone.identify(scope("Jane Doe")) is None
    assert anyone.identify({"state": {}}) is None
    assert anyone.identify({}) is None
    assert named.identify(scope("other", "spiffe://example.com/agent")) == "agent"
    assert named.identify(scope("agent")) is None
