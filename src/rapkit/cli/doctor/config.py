"""Whether there are settings, and what they say."""

from urllib.parse import urlsplit

from rapkit.cli.doctor.patient import Patient
from rapkit.cli.doctor.verdict import Verdict
from rapkit.cli.reaching import check_who_may_call
from rapkit.errors import ConfigError
from rapkit.http.callers import is_loopback_host
from rapkit.models.scripted import Scripted
from rapkit.runtime.agent import Agent
from rapkit.settings import DEFAULT_FILE, Settings

_CONFIG = "config"


def check(patient: Patient) -> list[Verdict]:
    """Every key is known, every value possible, and `rapkit up` would start with them; or what is wrong."""
    settings = patient.settings
    if settings is None:
        return [_without(patient)]
    try:
        _check_that_it_would_start(settings)
    except ConfigError as error:
        return [Verdict(_CONFIG, "failed", str(error), "Correct it: `rapkit up` does not start like this.")]
    where = str(patient.config) if patient.config.exists() else f"no {patient.config}, and none is needed"
    servers, schedules = len(settings.servers), len(settings.schedules)
    parts = [
        f"model {settings.model}",
        _counted(servers, "server"),
        *([_counted(schedules, "schedule")] if schedules else []),
    ]
    return [Verdict(_CONFIG, "ok", f"{where}: {', '.join(parts)}")]


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


def _without(patient: Patient) -> Verdict:
    if patient.config == DEFAULT_FILE and not patient.config.exists():
        return Verdict(
            _CONFIG,
            "warning",
            f"there is no {patient.config} here, and no model is named: nothing of an agent is looked at",
            "Run this where its settings are, or name them with -c. `rapkit up` says how to write some.",
        )
    what, _, example = (patient.problem or "").partition("\n\n")
    if example:
        # What to write does not fit here: the last sentence leads over to it.
        return Verdict(_CONFIG, "failed", f"{what.rpartition('. ')[0]}.", "`rapkit up` says what to write.")
    return Verdict(_CONFIG, "failed", what, f"Correct {patient.config}.")


def _counted(number: int, what: str) -> str:
    return f"{number or 'no'} {what}{'s' * (number != 1)}"
