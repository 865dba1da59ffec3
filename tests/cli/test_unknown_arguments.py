"""Words on the command line that cannot mean anything: each is one sentence that says what to write instead, and exit code 2."""

from pathlib import Path

import pytest

from rapkit.errors import ConfigError
from rapkit.runtime.server import Server
from tests.cli.agent_home import command
from tests.cli.command import TOOLS, rapkit
from tests.cli.fake_agent import FakeAgent, document, problem

NO_TEXT = "\udcff"  # a byte that is not UTF-8, as Python reads it from a command line
NO_AGENT = "is not where an agent could be. Give its URL, like http://127.0.0.1:8700."
NO_PASSWORD = "holds no user name or password. Give it a token, with --token."
A_FOLDER = "is no store but a folder. Name a file in it, like sqlite:///store.db."


def refusal(*words: str) -> str:
    """What is said of them, in one line."""
    outcome = command(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("rapkit: ")
    assert outcome.err.count("\n") == 1
    return outcome.err


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://a..b", id="an empty part"),
        pytest.param(f"http://{'a' * 100}", id="a part that is too long"),
        pytest.param(f"http://127.0.0.1:9/{NO_TEXT}", id="no text in the path"),
        pytest.param(f"http://{NO_TEXT}", id="no text as the host"),
        pytest.param("http://[::1", id="a bracket"),
    ],
)
def test_where_no_agent_can_be(url: str) -> None:
    assert NO_AGENT in refusal("ask", "--url", url, "hi")
    assert NO_AGENT in refusal("threads", "list", "--url", url)


def test_the_path_of_an_agent_may_have_any_letter(impostor: FakeAgent) -> None:
    impostor.answers = [problem(404, "No.")]

    refusal("ask", "--url", f"{impostor.url}/über uns/%20/", "hi")

    assert impostor.requests[0].path == "/%C3%BCber%20uns/%20/v1/agent"


@pytest.mark.parametrize("servers", [7, None, "http://x", {"http://x": 1}], ids=str)
def test_an_agent_that_does_not_list_its_servers_is_none(impostor: FakeAgent, servers: object) -> None:
    impostor.answers = [document({"store": "sqlite:///x.db", "works": True, "servers": servers})]

    said = refusal("ask", "--url", impostor.url, "--server", "http://x", "hi")

    assert f"What listens at {impostor.url} is no agent." in said


def test_what_is_no_text_is_no_thread(impostor: FakeAgent) -> None:
    about = document({"store": "sqlite:///x.db", "works": True})
    impostor.answers = [about, problem(404, "No.")]

    said = refusal("threads", "show", NO_TEXT, "--url", impostor.url)

    assert said.startswith("rapkit: There is no thread '\N{REPLACEMENT CHARACTER}'. See: rapkit threads list")


@pytest.mark.parametrize("words", [(NO_TEXT,), ("hi", "--user-id", NO_TEXT)], ids=["the message", "the user"])
def test_what_is_no_text_is_not_said(impostor: FakeAgent, words: tuple[str, ...]) -> None:
    impostor.answers = [document({"store": "sqlite:///x.db", "works": True})]

    said = refusal("ask", "--url", impostor.url, *words)

    assert said == "rapkit: That is no text: it holds bytes that are not UTF-8. Write it in UTF-8.\n"
    assert {request.method for request in impostor.requests} == {"GET"}


@pytest.mark.parametrize("words", [("inspect",), ("call",)], ids=" ".join)
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("8001", "http://127.0.0.1:8001"),
        (":8001", "http://127.0.0.1:8001"),
        ("7", "http://127.0.0.1:7"),
        ("localhost:8001", "http://localhost:8001"),
        ("tools.example.com/weather", "http://tools.example.com/weather"),
        ("http://[::1", "http://127.0.0.1:8001"),
        ("http://here:port", "http://127.0.0.1:8001"),
        ("http://:8001", "http://127.0.0.1:8001"),
        ("the weather", "http://127.0.0.1:8001"),
    ],
)
def test_where_no_tool_server_can_be(words: tuple[str, ...], given: str, meant: str) -> None:
    more = ("quote",) if words == ("call",) else ()

    said = refusal(*words, given, *more)

    assert said == f"rapkit: {given!r} is not the URL of a server. Write it like {meant}.\n"


@pytest.mark.parametrize("url", [f"http://{NO_TEXT}/", f"http://here/{NO_TEXT}"], ids=["the host", "the path"])
def test_no_tool_server_is_where_no_text_says(url: str) -> None:
    assert "is not the URL of a server. Write it like http://127.0.0.1:8001." in refusal("inspect", url)


@pytest.mark.parametrize(
    "url",
    ["http://me:hunter2@here/", "http://me:hunter2@[::1", "http://me:hunter2@here:port", "me:hunter2@here", "ftp://me:hunter2@here",
     "http:///me:hunter2@here", "http:/me:hunter2@here"],
)  # fmt: skip
def test_a_password_in_the_url_of_a_tool_server_is_not_repeated(url: str) -> None:
    for words in (("inspect", url), ("call", url, "quote")):
        said = refusal(*words)
        assert NO_PASSWORD in said
        assert "hunter2" not in said
    with pytest.raises(ConfigError, match="holds no user name or password") as caught:
        Server(url)  # which --server makes
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("words", [("up",), ("ask", "hi"), ("threads", "list"), ("doctor",)], ids=" ".join)
def test_a_password_in_the_url_of_a_store_is_not_repeated(tmp_path: Path, words: tuple[str, ...]) -> None:
    settings = '[agent]\nmodel = "scripted:plan.yaml"\nport = 0\nstore = "postgres://me:hunter2@db/agent"\n'
    (tmp_path / "rapkit.toml").write_text(settings)
    (tmp_path / "plan.yaml").write_text("- say: Hello.\n")

    outcome = rapkit(*words, folder=tmp_path)

    assert outcome.code != 0
    assert "postgres://…" in outcome.out + outcome.err
    assert "hunter2" not in outcome.out + outcome.err


def test_a_token_that_no_header_can_hold_is_not_repeated(tmp_path: Path, impostor: FakeAgent) -> None:
    port = impostor.url.rpartition(":")[2]
    (tmp_path / "token").write_text("hunter2-and-more-letters\nanother-line")
    (tmp_path / "rapkit.toml").write_text(
        f'[agent]\nmodel = "scripted:plan.yaml"\nport = {port}\n[agent.tokens]\nme = "file:token"\n'
    )

    outcome = rapkit("threads", "list", folder=tmp_path)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("rapkit: The token cannot be sent: it has characters other than printable ASCII")
    assert "hunter2" not in outcome.err


@pytest.mark.parametrize(
    "words",
    [("up",), ("ask", "hi"), ("wake",), ("chat",), ("serve", str(TOOLS), "--port", "0")],
    ids=lambda words: str(words[0]),
)
def test_a_folder_is_no_store(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "plan.yaml").write_text("- say: Hello.\n")
    (tmp_path / "rapkit.toml").write_text(
        '[agent]\nmodel = "scripted:plan.yaml"\nport = 0\npublic_url = "http://127.0.0.1:9"\n'
    )

    outcome = rapkit(*words, "--store", "sqlite:///.", folder=tmp_path)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == f"rapkit: 'sqlite:///.' {A_FOLDER}\n"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--url", "rapkit: --url goes after the subcommand: rapkit threads list --url … See: rapkit threads --help\n"),
        ("--dismiss", "rapkit: --dismiss goes after the subcommand: rapkit threads choose --dismiss … See: "),
        ("--nonsense", "rapkit: No such option"),
    ],
    ids=["of all", "of one", "of none"],
)
def test_an_option_of_a_subcommand_goes_after_it(option: str, said: str) -> None:
    assert refusal("threads", option, "http://127.0.0.1:9", "list").startswith(said)
