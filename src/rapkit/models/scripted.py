"""`Scripted`: a deterministic model for demos and tests that needs no API key."""

import inspect
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import yaml

from rapkit.errors import ConfigError
from rapkit.kernel.completion import Question, Reply, Usage
from rapkit.models.rule_model import RuleModel
from rapkit.models.rules import read_rules

Answering = Callable[[Question], Reply | str | Awaitable[Reply | str]]


class Scripted:
    """A model made of a function, which may be async and may raise ModelError. `from_file` and `from_rules` make one of rules."""

    def __init__(
        self,
        answering: Answering,
        *,
        name: str = "scripted",
        takes_images: bool = False,
        context_window: int | None = None,
    ) -> None:
        self._answering = answering
        self._name = name
        self._takes_images = takes_images
        self._context_window = context_window

    @staticmethod
    def from_file(path: Path) -> RuleModel:
        """Follow the rules of a YAML file; ConfigError says what is wrong in it and where."""
        value, lines = _read(path)
        return RuleModel(read_rules(value, str(path), lines.get), name=f"scripted:{path}", source=str(path))

    @staticmethod
    def from_rules(rules: list[dict[str, Any]], *, name: str = "scripted") -> RuleModel:
        """Follow rules given in Python, the same as they would stand in a file."""
        return RuleModel(read_rules(rules, "The script"), name=name, source="The script")

    @property
    def name(self) -> str:
        """As it was made."""
        return self._name

    @property
    def takes_images(self) -> bool:
        """As it was made."""
        return self._takes_images

    @property
    def context_window(self) -> int | None:
        """As it was made."""
        return self._context_window

    async def complete(self, question: Question, on_text: Callable[[str], None]) -> Reply:
        """Make one completion; see `Model`."""
        answer = self._answering(question)
        said = await answer if inspect.isawaitable(answer) else answer
        reply = Reply(said, usage=Usage(1), model=self._name) if isinstance(said, str) else said
        if reply.text:
            on_text(reply.text)
        return reply


def _read(path: Path) -> tuple[Any, dict[int, int]]:
    """What the file says, and in which line each rule begins."""
    try:
        text = path.read_text(encoding="utf-8")
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        value = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"The script {path} cannot be read: {error}.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f", line {mark.line + 1}" if mark else ""
        raise ConfigError(f"{path}{where} is not YAML: {getattr(error, 'problem', None) or error}.") from error
    if isinstance(node, yaml.MappingNode):
        node = next((item for key, item in node.value if key.value == "rules"), node)
    rules = node.value if isinstance(node, yaml.SequenceNode) else []
    return value, {number: rule.start_mark.line + 1 for number, rule in enumerate(rules, 1)}
