"""Choose the real model for `rapkit demo --live`."""

import os

from rapkit.cli.demo.participants import SCRIPT
from rapkit.errors import ConfigError
from rapkit.models import open_model

_SMALL = {"OPENAI_API_KEY": "openai:gpt-5-mini", "ANTHROPIC_API_KEY": "anthropic:claude-haiku-5-5"}


def live_model() -> str:
    """RAPKIT_MODEL, or a small model of the first provider whose key is set. ConfigError says what to set or install."""
    name = os.environ.get("RAPKIT_MODEL") or next((model for key, model in _SMALL.items() if os.environ.get(key)), None)
    if name is None:
        raise ConfigError(
            f"--live needs a model: set {' or '.join(_SMALL)}, or name one in RAPKIT_MODEL. Without --live a script stands in for it."
        )
    if name.startswith(SCRIPT.partition(":")[0]):
        raise ConfigError(
            f"--live is for a real model, and RAPKIT_MODEL is {name!r}. Leave out --live, or name another."
        )
    open_model(name)  # so that what is missing is said now
    return name
