"""Every example is short, can be served, and does what it says."""

import contextlib
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from rapkit import Toolset, testing
from rapkit.cli.toolset_loader import load_toolset

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))
MOST_LINES = 80


def load(name: str) -> Toolset:
    return load_toolset(str(EXAMPLES[0].parent / f"{name}.py"))


@pytest.fixture(autouse=True)
def settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("GITHUB_WEBHOOK_SECRET", "GITHUB_CLIENT_ID", "GITHUB_CLIENT_SECRET"):
        monkeypatch.setenv(name, "for a test")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_is_short_and_can_be_served(example: Path) -> None:
    document = load_toolset(str(example)).document("http://localhost")

    assert all(tool.description for tool in document.tools)
    assert len(example.read_text().splitlines()) < MOST_LINES


async def test_the_weather_tools_forecast_draw_and_ask() -> None:
    async with testing.serve(load("weather")) as client:
        assert (await client.call("forecast", city="Oslo")).text == "Sunny in Oslo for the next 3 days."
        (image,) = (await client.call("temperature_map", city="Oslo")).images
        assert image.data.startswith(b"\x89PNG")

        for answer, expected in (("Yes", "Everyone is leaving Oslo."), ("No", "Error: The user declined.")):
            call = await client.start("evacuate", city="Oslo")
            question = await call.choice()
            assert (question.prompt, question.default) == ("Really evacuate Oslo?", "No")
            await question.select(answer)
            assert (await call.result()).text == expected


async def test_the_ci_watcher_passes_on_what_github_has_signed() -> None:
    async with testing.serve(load("ci_watcher")) as client:
        every = await client.subscribe("watch_builds", owner="acme", repo="api")
        once = await client.subscribe("wait_for_build", owner="acme", repo="api", commit="c0ffee00")
        build = {
            "action": "completed",
            "repository": {"full_name": "acme/api"},
            "workflow_run": {
                "name": "tests",
                "head_branch": "main",
                "head_sha": "c0ffee00",
                "conclusion": "failure",
                "html_url": "https://github.com/acme/api/actions/runs/1",
            },
        }
        body = json.dumps(build).encode()
        signature = hmac.new(b"for a test", body, hashlib.sha256).hexdigest()
        headers = {
            "x-github-event": "workflow_run",
            "x-github-delivery": "1",
            "x-hub-signature-256": f"sha256={signature}",
        }
        for _ in range(2):  # GitHub may send it twice
            assert (await client.request("POST", "/hooks/github", body, headers=headers)).status == 200
        forged = {**headers, "x-github-delivery": "2", "x-hub-signature-256": f"sha256={'0' * 64}"}
        assert (await client.request("POST", "/hooks/github", body, headers=forged)).status == 401

        told = "acme/api: tests on main: failure. https://github.com/acme/api/actions/runs/1"
        assert (await every.event()).text == told
        final = await once.event()
        assert (final.text, final.final, final.associative) == ("The build of c0ffee0 ended: failure.", True, True)
        await client.settled()
        assert len(every.events) == 1
        await every.cancel()


async def test_the_shell_streams_and_stops() -> None:
    async with testing.serve(load("shell")) as client:
        assert (await client.call("run", command="echo hello > a; cat a")).text == "hello\n"
        assert (await client.call("run", command="cat a")).text == "hello\n"
        assert (await client.call("run", command="echo no >&2; exit 3")).text == "Error: exit status 3\nno"

        output = await client.subscribe("follow", command="echo one; echo two")
        told = []
        while not output.ended:
            await client.advance(1)
            told = [event.text for event in output.events]
        assert "\n".join(told).splitlines() == ["$ echo one; echo two", "one", "two", "exit status 0"]
        assert all(event.associative for event in output.events)

        endless = await client.subscribe("follow", command="echo begun; sleep 1000")
        await endless.event()
        await endless.cancel()


@contextlib.contextmanager
def fake_github(requests: list[tuple[str, str, str]]) -> Iterator[str]:
    """An API that knows one token."""

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            token = self.headers["Authorization"].removeprefix("Bearer ")
            requests.append((self.command, self.path, token))
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            issues = [{"repository": {"full_name": "acme/api"}, "number": 7, "title": "It rains"}]
            body = json.dumps(issues).encode()
            self.send_response(200 if token == "good" else 401)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_PATCH = _answer  # noqa: N815 - what http.server calls them

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


async def test_the_github_tools_ask_for_consent_once_and_again_when_the_token_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests: list[tuple[str, str, str]] = []
    with fake_github(requests) as url:
        monkeypatch.setenv("GITHUB_API_URL", url)
        async with testing.serve(load("github")) as client:
            call = await client.start("my_issues")
            consent = await call.oauth()
            assert (consent.provider, consent.scopes) == ("github", ("repo",))
            await consent.approve("stale")
            await (await call.oauth()).approve("good")
            assert (await call.result()).json() == ["acme/api#7: It rains"]

            call = await client.start("close_issue", repository="acme/api", number=7)
            await (await call.choice()).select("Close it")
            assert (await call.result()).text == "acme/api#7 is closed."
            assert requests[-1] == ("PATCH", "/repos/acme/api/issues/7", "good")

            call = await client.as_(user_id="somebody else").start("my_issues")
            await (await call.oauth()).deny()
            assert (await call.result()).is_error
