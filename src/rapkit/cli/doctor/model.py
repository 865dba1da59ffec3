"""Check that the model can be used."""

import asyncio
import time

from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.errors import ConfigError
from rapkit.kernel.completion import Question
from rapkit.kernel.conversation import Heard
from rapkit.models.errors import ModelError
from rapkit.models.model import Model
from rapkit.models.registry import open_model

_CHECK = "model"
_SCRIPTED = "scripted:"


def check(checked: CheckedAgent) -> list[CheckResult]:
    """Open it, which shows that its name, its package and its key are there; with `ask_model`, ask it for one word."""
    settings = checked.settings
    if settings is None:
        return [CheckResult(_CHECK, "skipped", "without settings nobody knows which it is")]
    try:
        model = open_model(settings.model)
    except ConfigError as error:
        return [CheckResult(_CHECK, "failed", str(error), "Set what it needs, or name another model.")]
    if checked.ask_model:
        return [asyncio.run(_asked(model))]
    if settings.model.startswith(_SCRIPTED):
        return [CheckResult(_CHECK, "ok", f"{model.name}, a script that needs no key")]
    return [CheckResult(_CHECK, "ok", f"{model.name}: there is a key; whether it is good shows `--ask-model`")]


async def _asked(model: Model) -> CheckResult:
    began = time.monotonic()
    question = Question("You are being tested. Answer with one word.", (Heard(texts=("Say: ready",)),), ())
    try:
        reply = await model.complete(question, lambda _: None)
    except ModelError as error:
        later = "Try again later." if error.retryable else "Check the key, the name of the model and the account."
        return CheckResult(_CHECK, "failed", f"{model.name}: {error}", later)
    took = f"{time.monotonic() - began:.1f} s, {reply.usage.input_tokens + reply.usage.output_tokens} tokens"
    cost = f", ${reply.usage.cost:.4f}" if reply.usage.cost else ""
    return CheckResult(_CHECK, "ok", f"{model.name} answered: {took}{cost}")
