"""Check that tool servers answer and accept their tokens, and which of their tools are offered to the model."""

import asyncio
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

from rapkit.cli.daemon_thread import run_in_daemon_thread
from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.cli.doctor.fetch import fetch
from rapkit.cli.doctor.tokens import NEEDS_A_TOKEN, TokenProbe, what_is_wrong, what_to_do
from rapkit.cli.unknown_tools import unknown_tools
from rapkit.errors import ConfigError, DeliveryError
from rapkit.runtime.discovery import Discovery, DiscoveryFailed, Fetched
from rapkit.runtime.server import Server
from rapkit.runtime.toolsets import ToolsetFinding, catalog_of

_CHECK = "server"
_ANSWERED = re.compile(r" answered ([0-9]{3})\. ")
_SILENT = " answer within "

P = ParamSpec("P")
T = TypeVar("T")


async def _in_thread(work: Callable[P, T], *given: P.args, **options: P.kwargs) -> T:
    return await asyncio.wrap_future(run_in_daemon_thread(work, *given, **options))


class _Fetcher:
    """Fetches in threads, with the client certificate of a server; an answer too long is refused only when it is there."""

    def __init__(self, server: Server) -> None:
        self._certificate = server.certificate

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """As agents do, which keep their connections."""
        answer = await _in_thread(fetch, url, headers, self._certificate)
        if len(answer.body) > limit:
            raise DeliveryError(f"It answered with more than {limit} bytes.")
        return answer.status, answer.body


def check(checked: CheckedAgent) -> list[CheckResult]:
    """Ask all of them at once, with the token of each."""
    settings = checked.settings
    if settings is None:
        return [CheckResult(_CHECK, "skipped", "without settings nobody knows which there are")]
    if not settings.servers:
        return [CheckResult(_CHECK, "skipped", "none is configured: the model has only its built-in tools")]
    asked = asyncio.run(_ask(settings.servers))
    findings = _findings(asked)
    unknown = unknown_tools(settings.limits, findings)
    return [
        *(_result(finding, each, checked) for finding, each in zip(findings, asked, strict=True)),
        *(CheckResult("tools", "warning", sentence, "Correct the name in the settings.") for sentence in unknown),
    ]


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a server said: about what it offers, in how many seconds, and to the probe of its endpoint."""

    server: Server
    found: Fetched | DiscoveryFailed
    seconds: float
    probed: int | DeliveryError | None = None


async def _ask(servers: Sequence[Server]) -> list[_Asked]:
    knocking = TokenProbe(servers, _in_thread)

    async def ask(server: Server) -> _Asked:
        began = time.monotonic()
        (found,) = await Discovery(_Fetcher(server), _in_thread).fetch_all([server])
        seconds = time.monotonic() - began
        if isinstance(found, DiscoveryFailed):
            return _Asked(server, found, seconds)
        try:
            return _Asked(server, found, seconds, await knocking.status(server, found.document))
        except DeliveryError as error:
            return _Asked(server, found, seconds, error)

    return list(await asyncio.gather(*map(ask, servers)))


def _findings(asked: Sequence[_Asked]) -> list[ToolsetFinding]:
    catalog = catalog_of([each.server for each in asked], [each.found for each in asked])
    return [ToolsetFinding.of(each.server, each.found, catalog) for each in asked]


def _result(finding: ToolsetFinding, asked: _Asked, checked: CheckedAgent) -> CheckResult:
    server, document = finding.server, finding.document
    if document is None:
        problem = " ".join((finding.problem or "").split())
        seen = problem if server.origin in problem else f"{server.key}: {problem}"
        return CheckResult(_CHECK, "failed", seen, _remedy(server, problem, checked))
    offered = len(document.tools)
    seen = f"{server.key}: {document.name}, {offered} tool{'s' * (offered != 1)}, in {asked.seconds * 1000:.0f} ms"
    if isinstance(asked.probed, DeliveryError):
        seen += f"; but calls do not get to where it says that they go: {asked.probed}"
        return CheckResult(
            _CHECK, "failed", seen, "Have it started with the --public-url at which this machine reaches it."
        )
    if asked.probed in NEEDS_A_TOKEN:
        return CheckResult(
            _CHECK, "failed", f"{seen}; but {what_is_wrong(server, asked.probed)}", what_to_do(server, checked)
        )
    if finding.withheld:
        reasons = " ".join(dict.fromkeys(each.reason for each in finding.withheld))
        return CheckResult(
            _CHECK,
            "warning",
            f"{seen}; withheld from the model: {', '.join(each.name for each in finding.withheld)}. {reasons}{_ignored(finding)}",
            "Give one of the servers a prefix, or have the tool renamed or corrected.",
        )
    if finding.ignored:
        return CheckResult(_CHECK, "warning", seen + _ignored(finding), f"Tell whoever runs it; {_inspect(server)}.")
    return CheckResult(_CHECK, "ok", seen)


def _ignored(finding: ToolsetFinding) -> str:
    return f"; ignored, because it cannot be used: {'; '.join(finding.ignored)}" if finding.ignored else ""


def _inspect(server: Server) -> str:
    return f"`rapkit inspect {server.base}` shows all of it"


def _remedy(server: Server, problem: str, checked: CheckedAgent) -> str:
    try:
        asyncio.run(server.headers("GET", server.base))
    except ConfigError:
        return f"Check its {'token' if server.auth is None else 'AWS credentials'} in the settings."
    answered = _ANSWERED.search(problem)
    status = int(answered[1]) if answered else 0
    if status in NEEDS_A_TOKEN:
        return what_to_do(server, checked)
    url = checked.sources.of(server) or "its url in the settings"
    if 0 < status < 500:
        return f"Correct {url}."
    if "valid toolset" in problem:
        return f"Tell whoever runs it; {_inspect(server)}."
    if _SILENT in problem:
        return f"See whether it hangs, and restart it; or correct {url}."
    return f"Start it, or correct {url}."
