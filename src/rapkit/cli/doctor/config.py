"""Check that settings exist and are valid."""

import re
import shlex
from urllib.parse import urlsplit

from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.cli.public_url import check_who_may_call, public_url
from rapkit.errors import ConfigError
from rapkit.http.authentication import is_loopback_host
from rapkit.http.plain_http import check_plain_http
from rapkit.models.scripted import Scripted
from rapkit.runtime.agent import Agent
from rapkit.settings.missing_file import missing_file_error
from rapkit.settings.settings import DEFAULT_FILE, Settings

_CONFIG = "config"
_ANY_PORT = 1  # in place of the free one that `rapkit up` would take
_OUTSIDE = re.compile(r"--[a-z-]+|RAPKIT_[A-Z_]+")  # how a problem begins that is not one of the file


def check(checked: CheckedAgent) -> list[CheckResult]:
    """Every key is known, every value possible, and `rapkit up` would start with them; or what is wrong."""
    settings = checked.settings
    if settings is None:
        return [_without(checked)]
    try:
        _check_that_it_would_start(settings)
    except ConfigError as error:
        return [CheckResult(_CONFIG, "failed", str(error), "Correct it: `rapkit up` does not start like this.")]
    where = str(checked.config) if checked.config.exists() else f"no {checked.config}, and none is needed"
    servers, schedules = len(settings.servers), len(settings.schedules)
    parts = [
        f"model {settings.model}",
        _counted(servers, "server"),
        *([_counted(schedules, "schedule")] if schedules else []),
    ]
    return [CheckResult(_CONFIG, "ok", f"{where}: {', '.join(parts)}")]


def _check_that_it_would_start(settings: Settings) -> None:
    # With a model that is always there: the real one is looked at by a check of its own.
    Agent(
        model=Scripted(lambda _: ""),
        servers=settings.servers,
        public_url=settings.public_url,
        tokens=settings.tokens,
        schedules=settings.schedules,
    )
    check_who_may_call(settings)
    url = settings.public_url
    if url is not None and not settings.tokens and not is_loopback_host(urlsplit(url).hostname or ""):
        raise ConfigError(
            f"{url} can be reached from other machines, and no token is configured: behind a proxy anybody could use your agent. "
            "Configure a token (--token, or [agent.tokens] in the file)."
        )
    if not settings.allow_plain_http:
        check_plain_http(public_url(settings, settings.port or _ANY_PORT), allowed=False)


def _without(checked: CheckedAgent) -> CheckResult:
    if checked.problem == missing_file_error(checked.config):
        return CheckResult(
            _CONFIG,
            "warning",
            f"there is no {checked.config} here, and no model is named: nothing of an agent is looked at",
            "Run this where its settings are, or name them with -c. `rapkit up` says how to write some.",
        )
    what, _, example = (checked.problem or "").partition("\n\n")
    if example:
        # What to write does not fit here: the last sentence leads over to it.
        return CheckResult(_CONFIG, "failed", f"{what.rpartition('. ')[0]}.", _what_to_write(checked))
    return CheckResult(_CONFIG, "failed", what, f"Correct {' and '.join(_wrong(what, checked))}.")


def _what_to_write(checked: CheckedAgent) -> str:
    config, named_by = checked.config, checked.sources.config
    up = "`rapkit up`" if config == DEFAULT_FILE else f"`rapkit up -c {shlex.quote(str(config))}`"
    if named_by is None or config.exists():
        return f"{up} says what to write."
    return f"Correct {named_by}, or write that file: {up} says how."


def _wrong(what: str, checked: CheckedAgent) -> list[str]:
    """Where the problems are, of which each has a line."""
    named_by = checked.sources.config
    file = named_by if named_by is not None and checked.config.is_dir() else str(checked.config)
    outside = [_OUTSIDE.match(line) for line in what.splitlines()]
    return list(dict.fromkeys(file if found is None else found[0] for found in outside))


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' * (number != 1)}"
