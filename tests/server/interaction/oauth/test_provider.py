import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from rapkit import Context, Toolset
from rapkit.errors import ConfigError
from rapkit.extras import how_to_install
from rapkit.server.interaction.oauth import OAuthProvider
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.provider_server import provider_running
from tests.server.served_toolset import invocation, serving
from tests.server.sink import Sink

SECRET = "s3cret-of-the-client"


def declare(name: str = "github", **changes: Any) -> OAuthProvider:
    declared: dict[str, Any] = {
        "authorize_url": "https://github.example/authorize?tenant=1",
        "token_url": "https://github.example/token",
        "client_id": "id",
        "client_secret": SECRET,
    }
    return OAuthProvider(name, **{**declared, **changes})


def test_a_provider_shows_everything_but_its_secret() -> None:
    """OAU-2"""
    provider = declare(scopes=["repo"])

    assert "repo" in repr(provider)
    assert SECRET not in repr(provider)
    assert provider.read_secret() == SECRET


def test_github_and_google_need_only_a_client() -> None:
    github = OAuthProvider.github("id", "env:GITHUB_SECRET", scopes=["repo"])
    google = OAuthProvider.google("id", "env:GOOGLE_SECRET", scopes=["openid"])

    assert (github.name, github.token_url) == ("github", "https://github.com/login/oauth/access_token")
    assert (google.name, google.token_url) == ("google", "https://oauth2.googleapis.com/token")
    assert google.authorize_params["access_type"] == "offline"


def test_the_secret_comes_from_where_it_is_said_to(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CLIENT_SECRET", "from-env")
    (tmp_path / "secret").write_text("from-file\n")

    assert declare(client_secret="env:CLIENT_SECRET").read_secret() == "from-env"
    assert declare(client_secret=f"file:{tmp_path}/secret").read_secret() == "from-file"
    with pytest.raises(ConfigError, match="NOWHERE is not set"):
        declare(client_secret="env:NOWHERE").read_secret()


def test_a_secret_that_cannot_be_one_is_refused_without_being_shown(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("\n")

    with pytest.raises(ConfigError, match="client secret is empty"):
        declare(client_secret=f"file:{tmp_path}/empty").read_secret()
    with pytest.raises(ConfigError) as refused:
        declare(client_secret="zweiwörter hier").read_secret()
    assert "hier" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"name": "git hub"}, "is no name"),
        ({"name": ""}, "is no name"),
        ({"name": "x" * 65}, "is no name"),
        ({"authorize_url": "http://github.example/authorize"}, "authorize_url must be https"),
        ({"token_url": "http://10.0.0.1/token"}, "token_url must be https"),
        ({"token_url": "http://localhost.example/token"}, "token_url must be https"),
        ({"token_url": "https://github.example/token?key=1"}, "neither a query nor a fragment"),
        ({"authorize_url": "https://github.example/authorize#top"}, "no fragment"),
        ({"authorize_url": "https://user:pw@github.example/"}, "without a user name or password"),
        ({"authorize_url": "/authorize"}, "absolute https URL"),
        ({"authorize_url": "javascript:alert(1)"}, "absolute https URL"),
        ({"token_url": "https://github.example:port/token"}, "token_url is no URL"),
        ({"token_url": "https://github.example/to ken"}, "absolute https URL"),
        ({"client_id": ""}, "client_id"),
        ({"scopes": "repo user"}, "scopes is a list"),
        ({"scopes": ["repo user"]}, "scopes is a list"),
        ({"authorize_params": {"state": "mine"}}, "authorize_params cannot set state"),
        ({"token_auth": "mtls"}, "token_auth is one of"),
        ({"client_secret": None}, 'token_auth="none"'),
        ({"token_auth": "none"}, 'token_auth="none"'),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        declare(**changes)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("host", ["localhost:9", "127.0.0.1:9", "127.8.8.8", "[::1]:9"])
def test_plain_http_is_for_this_machine_alone(host: str) -> None:
    assert declare(token_url=f"http://{host}/token").token_url == f"http://{host}/token"


def test_without_the_extra_a_declared_provider_is_refused_with_the_command_to_run() -> None:
    program = """
import sys
sys.modules["authlib"] = sys.modules["httpx2"] = None
from rapkit.clock import SystemClock
from rapkit.errors import ConfigError
from rapkit.server.interaction.oauth import OAuth, OAuthProvider
from rapkit.server.interaction.oauth.service import open_client
open_client([], SystemClock())
try:
    open_client([OAuthProvider.github("id", "secret")], SystemClock())
except ConfigError as error:
    print(error)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, text=True)

    assert how_to_install("oauth") in ended.stdout


async def test_the_client_id_may_come_from_a_variable(
    toolset: Callable[..., Toolset], sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """OAU-2: it is read at the start; the provider hears the id itself, in the link and when the code is exchanged."""
    async with provider_running() as provider:
        tools = toolset(oauth=[provider.declare("github", client_id="env:CLIENT_ID")])

        @tools.tool(requires_auth="github")
        async def whoami(ctx: Context) -> str:
            """Who the provider says the user is."""
            return f"you are {provider.owner_of(await ctx.oauth('github'))}"

        for value, problem in ((None, "The environment variable CLIENT_ID is not set"), ("a b", "characters that no")):
            if value is not None:
                monkeypatch.setenv("CLIENT_ID", value)
            with pytest.raises(ConfigError, match=problem):
                async with tools.lifespan():
                    pass
        monkeypatch.setenv("CLIENT_ID", provider.client_id)
        async with serving(tools) as server:
            await server.invoke(invocation(sink.url, "whoami", user_id="u1"))
            (asked,) = await sink.received(1)
            url = asked.message["auth_url"]
            assert parse_qs(urlsplit(url).query)["client_id"] == [provider.client_id]
            assert (await Browser().authorise(url)).status == 200
            _, result = await sink.received(2)

            assert result.text == "you are ann"
