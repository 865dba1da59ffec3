"""Check that tools can call back: that something answers at the agent's public URL, and that it is this agent.

A server cannot be asked to call back without calling one of its tools. So what can be known from here is checked: that it is not an address
of this machine alone while servers are elsewhere, that its name is known, its certificate good, and that what listens where the agent does
is what answers there. If the agent does not run, doctor listens in its place for a moment.
"""

import dataclasses
import socket
from urllib.parse import urlsplit

from rapkit.cli.agent_api import AgentApi, AgentRefused, AgentUnreachable
from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.cli.doctor.fetch import fetch
from rapkit.cli.doctor.probe_listener import ProbeListener
from rapkit.cli.public_url import public_url
from rapkit.errors import ConfigError, DeliveryError
from rapkit.http.authentication import is_loopback_host
from rapkit.printable import printable
from rapkit.secret import read_bearer
from rapkit.settings.settings import Settings
from rapkit.stores import absolute, file_of

_CHECK = "public_url"
_NOT_FOUND = 404
_NEEDS_A_TOKEN = (401, 403)
_PATIENCE = 8.0  # twice, and there is still time to tell of it


def check(checked: CheckedAgent) -> list[CheckResult]:
    """Fetch something from it, and see who answers."""
    settings = checked.settings
    if settings is None:
        return [CheckResult(_CHECK, "skipped", "without settings nobody knows it")]
    try:
        url = public_url(settings)
    except ConfigError:
        return [CheckResult(_CHECK, "skipped", "the agent takes any free port, so it is known only when it runs")]
    return [_only_local(settings, url) or _unknown_name(url) or _who_answers(settings, url)]


def _only_local(settings: Settings, url: str) -> CheckResult | None:
    far = [server.key for server in settings.servers if not server.is_local]
    if not far or not is_loopback_host(urlsplit(url).hostname or ""):
        return None
    return CheckResult(
        _CHECK,
        "failed",
        f"{url} can be reached from this machine alone, and not on it are: {', '.join(far)}. Their answers cannot arrive",
        "Set public_url to an address of this agent that they can reach.",
    )


def _unknown_name(url: str) -> CheckResult | None:
    host = urlsplit(url).hostname or ""
    try:
        socket.getaddrinfo(host, None)
    except OSError as error:
        return CheckResult(
            _CHECK,
            "failed",
            f"{url}: the name {host} is not known ({error.strerror or error})",
            "Correct it, or its DNS.",
        )
    return None


def _who_answers(settings: Settings, url: str) -> CheckResult:
    here = is_loopback_host(urlsplit(url).hostname or "")
    try:
        # A server at a wrong address would learn the token.
        agent = AgentApi(url, _token(settings) if here else None, patience=_PATIENCE).get("agent")
        store = agent["store"]
    except AgentUnreachable as error:
        return _in_its_place(settings, url, str(error))
    except (AgentRefused, TypeError, KeyError) as error:
        if not here and isinstance(error, AgentRefused) and error.status in _NEEDS_A_TOKEN:
            return _alike(settings, url, error)
        return _no_agent(url, error)
    except ConfigError as error:
        return CheckResult(
            _CHECK, "failed", str(error), "Correct the token of the agent's clients, or what it is to come from."
        )
    if file_of(settings.store) is not None and store != absolute(settings.store):
        seen = f"another agent answers at {url}: its threads are in {printable(str(store))}"
        return CheckResult(_CHECK, "failed", seen, "Give this one a public_url, or a port, of its own.")
    idle = "" if agent.get("works", True) else ", without a worker"
    return CheckResult(_CHECK, "ok", f"this agent answers at {url}{idle}")


def _alike(settings: Settings, url: str, there: AgentRefused) -> CheckResult:
    """A server answers that wants a token which is not sent to it. Compare with what the local agent answers to that."""
    local = AgentApi(_local_url(settings), patience=_PATIENCE)
    try:
        local.get("agent")
    except AgentUnreachable:
        seen = f"somebody who wants a token answers at {url}, and the agent does not run on {settings.host} port {settings.port}"
        return CheckResult(_CHECK, "warning", seen, "Run this where the agent runs, to see whether it is the one.")
    except AgentRefused as here:
        if str(here).replace(local.url, "") == str(there).replace(url.rstrip("/"), ""):
            return CheckResult(_CHECK, "ok", f"what answers at {url} says what the agent here says")
    seen = f"what answers at {url} does not say what the agent on {settings.host} port {settings.port} says"
    return CheckResult(_CHECK, "failed", seen, "Correct public_url, or the way from there to here: proxy, port.")


def _no_agent(url: str, error: Exception) -> CheckResult:
    status = error.status if isinstance(error, AgentRefused) else 0
    if status in _NEEDS_A_TOKEN:
        seen = f"something answers {status} at {url}, to a token of these settings"
        return CheckResult(_CHECK, "warning", seen, "If it is this agent, start it again with these settings.")
    if status == 0 and isinstance(error, AgentRefused):
        return CheckResult(_CHECK, "failed", str(error), "Correct the certificate, or who ends TLS before the agent.")
    seen = f"what answers at {url} is no agent" + (f" (status {status})" if status not in (0, 200, _NOT_FOUND) else "")
    return CheckResult(_CHECK, "failed", seen, "Correct public_url, or give the agent another port.")


def _in_its_place(settings: Settings, url: str, problem: str) -> CheckResult:
    """The agent does not run, or cannot be reached: see which, by listening where it would."""
    where = f"{settings.host} port {settings.port}"
    if not settings.port:
        return CheckResult(_CHECK, "skipped", "the agent takes any free port: it can be looked for only while it runs")
    try:
        with ProbeListener(settings.host, settings.port) as stand_in:
            answer = fetch(f"{url.rstrip('/')}/{stand_in.word}")
    except ConfigError as error:
        if "is taken" not in str(error):
            return CheckResult(_CHECK, "failed", str(error), "Correct the host that it is to listen on.")
        return _taken(settings, url, problem)
    except DeliveryError as error:
        seen = f"the agent does not run, and what listens on {where} is not reached at {url}: {error}"
        return CheckResult(
            _CHECK, "failed", seen, "Correct public_url, or the way from there to here: proxy, firewall, port."
        )
    if answer.body != stand_in.word.encode():
        seen = f"the agent does not run, and something else answers at {url} (status {answer.status})"
        return CheckResult(_CHECK, "failed", seen, f"Correct public_url, or have it lead to {where}.")
    return CheckResult(_CHECK, "ok", f"the agent does not run; {url} leads to {where}, where it will listen")


def _taken(settings: Settings, url: str, problem: str) -> CheckResult:
    """Something listens where the agent would: see whether it answers there."""
    where = f"{settings.host} port {settings.port}"
    local = _local_url(settings)
    if _answers(local, known_not_to=url):
        seen = f"{problem} But something listens on {where}"
        return CheckResult(_CHECK, "failed", seen, "If it is this agent, public_url does not lead to it: correct it.")
    seen = f"{problem} Something listens on {where}, and does not answer as an agent does"
    do = "Look at it: if it is this agent, it hangs or fails, so restart it; if not, give the agent another port."
    return CheckResult(_CHECK, "failed", seen, do)


def _answers(local: str, *, known_not_to: str) -> bool:
    if local == known_not_to.rstrip("/"):
        return False
    try:
        AgentApi(local, patience=_PATIENCE).get("agent")
    except AgentUnreachable:
        return False
    except AgentRefused:
        pass
    return True


def _local_url(settings: Settings) -> str:
    """Where it is reached on this machine."""
    return public_url(dataclasses.replace(settings, public_url=None))


def _token(settings: Settings) -> str | None:
    return next((read_bearer(each) for tokens in settings.tokens.values() for each in tokens), None)
