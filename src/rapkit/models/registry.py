"""Open the model that a name stands for."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rapkit.errors import ConfigError
from rapkit.extras import how_to_install
from rapkit.models.model import Model
from rapkit.models.scripted import Scripted

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel

_SCRIPTED = "scripted:"
_POSSIBLE = (
    'Use "provider:model" as pydantic-ai names it, such as "openai:gpt-5-mini", "openai-chat:…" or "anthropic:…", '
    'or "scripted:plan.yaml".'
)
_WITHOUT_A_KEY = 'To try things without a key, use a script, like "scripted:plan.yaml", or see `rapkit demo`.'
_VARIABLE = re.compile(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b")
_PIP_INSTALL = re.compile(r'pip install "[^"]+"')


def open_model(name: "str | Model | PydanticModel[Any]") -> Model:
    """Open a model by its name; a model of ours is returned as it is, one of pydantic-ai's is wrapped.

    No request is made, but what can be known is said now and not at the first question: ConfigError names the provider that does not exist,
    the package that is not installed, the key that is not set.
    """
    if isinstance(name, str):
        return Scripted.from_file(Path(_plan(name))) if name.startswith(_SCRIPTED) else _provided(name)
    if isinstance(name, Model):
        return name
    return _adapted(name)


def _plan(name: str) -> str:
    plan = name.removeprefix(_SCRIPTED)
    if not plan:
        raise ConfigError(f'{name!r} names no file. Use "scripted:plan.yaml".')
    return plan


def _provided(name: str) -> Model:
    provider, colon, model = name.partition(":")
    if name != "test" and not (provider and colon and model):
        raise ConfigError(f"{name!r} is no model. {_POSSIBLE}")
    try:
        from pydantic_ai.exceptions import UserError
        from pydantic_ai.models import infer_model
    except ImportError as error:
        raise ConfigError(f"The model {name!r} cannot be used: {_not_installed()}") from error
    # Not above: these load pydantic-ai, which a scripted model does without.
    from rapkit.models.provider import ProviderModel
    from rapkit.models.provider_errors import sentence

    try:
        return ProviderModel(infer_model(name), name)
    except ImportError as error:
        raise ConfigError(f"The model {name!r} cannot be used: {_missing_package(error)}") from error
    except (UserError, ValueError) as error:
        raise ConfigError(_refusal(name, str(error))) from error
    except Exception as error:  # noqa: BLE001 - SDKs have their own ways to say that a key or an address is missing, and may quote it
        raise ConfigError(sentence(f"The model {name!r} cannot be used: {type(error).__name__}: {error}")) from None


def _adapted(model: "PydanticModel[Any]") -> Model:
    try:
        from pydantic_ai.models import Model as PydanticModel
    except ImportError as error:
        raise ConfigError(f"{type(model).__name__} is no model: {_not_installed()}") from error
    from rapkit.models.provider import ProviderModel

    if not isinstance(model, PydanticModel):
        raise ConfigError(
            f"{type(model).__name__} is no model. {_POSSIBLE} A pydantic-ai Model object will do as well."
        )
    return ProviderModel(model, f"{model.system}:{model.model_name}")


def _not_installed() -> str:
    return f"models come with an extra. Run: {how_to_install('agent')}"


def _missing_package(error: ImportError) -> str:
    found = _PIP_INSTALL.search(str(error))
    return f"its package is not installed. Run: {found[0]}" if found else f"a package is missing ({error})."


def _refusal(name: str, why: str) -> str:
    if why.startswith("Unknown model"):
        _, _, hint = why.partition("Did you mean ")
        return f"There is no model {name!r}. " + (f"Did you mean {hint.rstrip('?')}? " if hint else "") + _POSSIBLE
    variables = list(dict.fromkeys(_VARIABLE.findall(why)))
    if why.startswith("Set ") and variables:
        return f"The model {name!r} cannot be used: set {' or '.join(variables)}. {_WITHOUT_A_KEY}"
    return f"The model {name!r} cannot be used: {why}"
