"""Whether tool servers answer, what they offer, and what the model is not offered of it."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from typing import ParamSpec, TypeVar

from rapkit.cli.doctor.apart import apart
from rapkit.cli.doctor.fetching import fetch
from rapkit.cli.doctor.patient import Patient
from rapkit.cli.doctor.verdict import Verdict
from rapkit.cli.unknown_tools import unknown_tools
from rapkit.errors import DeliveryError
from rapkit.kernel.catalog import Catalog, Loaded
from rapkit.runtime.discovery import Discovery, DiscoveryFailed, Fetched
from rapkit.runtime.server import Server
from rapkit.runtime.toolsets import Finding

_CHECK = "server"

P = ParamSpec("P")
T = TypeVar("T")


async def _in_thread(work: Callable[P, T], *given: P.args, **options: P.kwargs) -> T:
    return await asyncio.wrap_future(apart(work, *given, **options))


class _Fetcher:
    """Fetches in threads; an answer too long is refused only when it is there."""

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        """As agents do, which keep their connections."""
        answer = await _in_thread(fetch, url, headers)
        if len(answer.body) > limit:
            raise DeliveryError(f"It answered with more than {limit} bytes.")
        return answer.status, answer.body


def check(patient: Patient) -> list[Verdict]:
    """Ask all of them at once, with the token of each."""
    settings = patient.settings
    if settings is None:
        return [Verdict(_CHECK, "skipped", "without settings nobody knows which there are")]
    if not settings.servers:
        return [Verdict(_CHECK, "skipped", "none is configured: the model has only its built-in tools")]
    asked = asyncio.run(_ask(settings.servers))
    findings = _findings(asked)
    unknown = unknown_tools(settings.limits, findings)
    return [
        *(_verdict(finding, seconds) for finding, (_, _, seconds) in zip(findings, asked, strict=True)),
        *(Verdict("tools", "warning", sentence, "Correct the name in the settings.") for sentence in unknown),
    ]


_Asked = tuple[Server, Fetched | DiscoveryFailed, float]


async def _ask(servers: Sequence[Server]) -> list[_Asked]:
    discovery = Discovery(_Fetcher(), _in_thread)

    async def ask(server: Server) -> _Asked:
        began = time.monotonic()
        (found,) = await discovery.fetch_all([server])
        return server, found, time.monotonic() - began

    return list(await asyncio.gather(*map(ask, servers)))


def _findings(asked: Sequence[_Asked]) -> list[Finding]:
    found = {server.key: each for server, each, _ in asked if isinstance(each, Fetched)}
    prefixes = {server.key: server.prefix for server, _, _ in asked}
    catalog = Catalog([Loaded(name, each.document, prefixes[name]) for name, each in found.items()])
    return [
        Finding(
            server,
            each.document if isinstance(each, Fetched) else None,
            None if isinstance(each, Fetched) else str(each),
            tuple(withheld for withheld in catalog.withheld if server.key in withheld.servers),
        )
        for server, each, _ in asked
    ]


def _verdict(finding: Finding, seconds: float) -> Verdict:
    server, document = finding.server, finding.document
    if document is None:
        problem = " ".join((finding.problem or "").split())
        seen = problem if server.origin in problem else f"{server.key}: {problem}"
        return Verdict(_CHECK, "failed", seen, _remedy(server, problem))
    offered = len(document.tools)
    seen = f"{server.key}: {document.name}, {offered} tool{'s' * (offered != 1)}, in {seconds * 1000:.0f} ms"
    if finding.withheld:
        reasons = " ".join(dict.fromkeys(each.reason for each in finding.withheld))
        return Verdict(
            _CHECK,
            "warning",
            f"{seen}; withheld from the model: {', '.join(each.name for each in finding.withheld)}. {reasons}",
            "Give one of the servers a prefix, or have the tool renamed.",
        )
    return Verdict(_CHECK, "ok", seen)


def _remedy(server: Server, problem: str) -> str:
    if "answered 40" in problem or "environment variable" in problem:
        return "Check its token in the settings."
    if "valid toolset" in problem:
        return f"Tell whoever runs it; `rapkit inspect {server.base}` shows all of it."
    return "Start it, or correct its url in the settings."
