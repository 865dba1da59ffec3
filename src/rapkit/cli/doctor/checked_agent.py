"""The agent that doctor checks: its settings, as far as they can be read."""

from dataclasses import dataclass, field
from pathlib import Path

from rapkit.cli.doctor.setting_sources import SettingSources
from rapkit.settings.settings import Settings


@dataclass(frozen=True, slots=True)
class CheckedAgent:
    """Settings, or the problem with them. `folder` is where the stores of tool servers are looked for. `ask_model`: it costs a little."""

    config: Path
    settings: Settings | None
    problem: str | None
    folder: Path
    ask_model: bool = False
    sources: SettingSources = field(default_factory=SettingSources)
