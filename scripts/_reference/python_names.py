"""reference/python.md: the public names, with their signatures and docstrings."""

import dataclasses
import inspect
import re
from collections.abc import Iterator
from types import ModuleType, UnionType
from typing import Any, Union, get_args, get_origin

import rapkit
import rapkit.client
import rapkit.testing
from scripts._reference.markdown import paragraphs

_MODULES = re.compile(
    r"\b(?:rapkit|typing|collections|pathlib|datetime|types|starlette|pydantic|pydantic_ai)(?:\.[a-z_]\w*)*\."
)
_WIDTH = 110
_HEAD = """# Python

The public names, generated from their signatures and docstrings.

"""


def python_page() -> str:
    """The page."""
    return _HEAD + "".join(_module(module) for module in (rapkit, rapkit.client, rapkit.testing))


def _module(module: ModuleType) -> str:
    named = "".join(_name(module, name) for name in module.__all__)
    return f"## {module.__name__}\n\n{paragraphs(inspect.getdoc(module) or '')}{named}"


def _name(module: ModuleType, name: str) -> str:
    value = getattr(module, name)
    if get_origin(value) in (Union, UnionType):
        members = _one_of(
            f"{name} = ", [_tidy(each.__name__ if isinstance(each, type) else str(each)) for each in get_args(value)]
        )
        return f"### {module.__name__}.{name}\n\n```python\n{members}\n```\n\n"
    parts = [f"### {module.__name__}.{name}\n\n", _signature(name, value), paragraphs(inspect.getdoc(value) or "")]
    if inspect.isclass(value):
        parts += [_member(value, each, member) for each, member in _members(value)]
    return "".join(parts)


def _one_of(head: str, members: list[str]) -> str:
    text = head + " | ".join(members)
    return text if len(text) <= _WIDTH else f"{head}(\n    " + "\n    | ".join(members) + "\n)"


def _members(value: type[Any]) -> Iterator[tuple[str, Any]]:
    """Methods and properties that the class or a class of ours above it defines, in order; fields are in the signature."""
    seen: set[str] = set()
    attributes = {field.name for field in dataclasses.fields(value)} if dataclasses.is_dataclass(value) else set()
    for owner in value.__mro__:
        if not owner.__module__.startswith("rapkit"):
            continue
        for name, member in vars(owner).items():
            documented = inspect.isfunction(member) or isinstance(member, property | staticmethod | classmethod)
            if documented and name[0] != "_" and name not in seen | attributes:
                seen.add(name)
                yield name, member


def _member(owner: type[Any], name: str, member: Any) -> str:
    doc = inspect.getdoc(getattr(owner, name)) or ""
    if isinstance(member, property):
        return f"```python\n{owner.__name__}.{name}\n```\n\n{paragraphs(doc)}"
    bound = member.__func__ if isinstance(member, staticmethod | classmethod) else member
    return _signature(f"{owner.__name__}.{name}", bound) + paragraphs(doc)


def _signature(name: str, value: Any) -> str:
    word = "async " if inspect.iscoroutinefunction(value) else ""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    parameters = [
        each.replace(annotation=_as_written(each.annotation))
        for each in signature.parameters.values()
        if each.name not in ("self", "cls")
    ]
    returned = inspect.Signature.empty if inspect.isclass(value) else _as_written(signature.return_annotation)
    shown = inspect.Signature(parameters, return_annotation=returned)
    text = _tidy(f"{word}{name}{shown}")
    if len(text) > _WIDTH:
        inside = ",\n    ".join(_tidy(each) for each in _one_by_one(shown))
        text = f"{word}{name}(\n    {inside},\n)" + _tidy(str(shown.replace(parameters=[])).removeprefix("()"))
    return f"```python\n{text}\n```\n\n"


def _one_by_one(signature: inspect.Signature) -> Iterator[str]:
    """Parameters, and the star after which they go by name."""
    starred = False
    for each in signature.parameters.values():
        if each.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            yield "*"
        starred = starred or each.kind in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_POSITIONAL)
        yield str(each)


class _Written:
    """An annotation that was written as a string, without its quotes."""

    def __init__(self, text: str) -> None:
        self._text = text

    def __repr__(self) -> str:
        return self._text


def _as_written(annotation: Any) -> Any:
    return _Written(annotation) if isinstance(annotation, str) else annotation


def _tidy(signature: str) -> str:
    """Without the modules that names come from, and the addresses of objects."""
    return re.sub(r"<[^<>]+>", "…", re.sub(_MODULES, "", signature))
