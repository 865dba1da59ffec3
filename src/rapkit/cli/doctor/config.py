"""Whether there are settings, and what they say."""

from rapkit.cli.doctor.patient import Patient
from rapkit.cli.doctor.verdict import Verdict
from rapkit.settings import DEFAULT_FILE

_CONFIG = "config"


def check(patient: Patient) -> list[Verdict]:
    """Every key is known and every value possible; or all that is wrong."""
    settings = patient.settings
    if settings is None:
        return [_without(patient)]
    where = str(patient.config) if patient.config.exists() else f"no {patient.config}, and none is needed"
    servers, schedules = len(settings.servers), len(settings.schedules)
    parts = [
        f"model {settings.model}",
        _counted(servers, "server"),
        *([_counted(schedules, "schedule")] if schedules else []),
    ]
    return [Verdict(_CONFIG, "ok", f"{where}: {', '.join(parts)}")]


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
