"""The catalog of tools offered to the model: their names, their servers, and which tools are withheld and why."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rapkit.kernel.builtins import RESERVED
from rapkit.kernel.completion import ModelTool
from rapkit.protocol import ArgumentChecker, ToolDefinition, ToolsetDocument, UnusableTool
from rapkit.protocol.display_script import render

_NOT_FOR_MODELS = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_MOST_LISTED = 100


@dataclass(frozen=True, slots=True)
class Loaded:
    """A server's toolset. `server` is its base URL; `prefix` comes before the names of its tools, for the model only.

    `unusable` are tools of the server that are not in the document, because they cannot be called.
    """

    server: str
    document: ToolsetDocument
    prefix: str = ""
    unusable: tuple[UnusableTool, ...] = ()


@dataclass(frozen=True)
class OfferedTool:
    """A tool that the model may call by `name`. `server` knows it as `definition.name`."""

    name: str
    server: str
    definition: ToolDefinition

    @cached_property
    def checker(self) -> ArgumentChecker:
        """Checks arguments; compiled when first used."""
        return ArgumentChecker(self.definition.inputSchema)

    @property
    def tool(self) -> ModelTool:
        """The tool as the model is told of it. The text is untrusted (RUN-9): it is passed on, and nothing else is done with it."""
        return ModelTool(self.name, self.definition.description, self.definition.inputSchema)

    def display(self, arguments: dict[str, Any]) -> str | None:
        """A call of the tool for people, in one line, if the tool says how."""
        script = self.definition.displayScript
        return None if script is None else render(script, arguments)


@dataclass(frozen=True, slots=True)
class WithheldTool:
    """A tool that is not offered, and why."""

    name: str
    servers: tuple[str, ...]
    reason: str


class Catalog:
    """The tools of a session. Of several with one name none is offered (DIS-5), nor is one with a name of ours.

    `missing` are servers whose tools are not among them because nothing is known of them, with the reason.
    """

    def __init__(self, loaded: Sequence[Loaded]) -> None:
        self.loaded = tuple(loaded)
        self.missing: Mapping[str, str] = {}
        named: dict[str, list[OfferedTool]] = defaultdict(list)
        for each in loaded:
            for definition in each.document.tools:
                name = offered_name(each.prefix, definition.name)
                named[name].append(OfferedTool(name, each.server, definition))
        self.offers = {name: offers[0] for name, offers in named.items() if len(offers) == 1 and name not in RESERVED}
        self.withheld = (
            *(_withheld(name, offers) for name, offers in named.items() if name not in self.offers),
            *(_left_out(each.server, tool) for each in loaded for tool in each.unusable),
        )

    @cached_property
    def tools(self) -> tuple[ModelTool, ...]:
        """What servers offer to the model."""
        return tuple(offer.tool for offer in self.offers.values())

    def without(self, missing: Mapping[str, str]) -> "Catalog":
        """The same catalog, in which the toolsets of these servers are missing."""
        if not missing:
            return self
        catalog = copy(self)
        catalog.missing = missing
        return catalog

    def document(self, server: str) -> ToolsetDocument | None:
        """What a server offered."""
        return next((each.document for each in self.loaded if each.server == server), None)

    def names(self, ours: Iterable[ModelTool] = ()) -> str:
        """The names the model may use, `ours` first, as a text; and whose tools are missing."""
        missing = f". The tools of {', '.join(self.missing)} are missing" if self.missing else ""
        return _listed(tool.name for tool in (*ours, *self.tools)) + missing


def offered_name(prefix: str, name: str) -> str:
    """What the model calls a tool: providers take letters, digits, `_` and `-`, and not more than 64 of them."""
    return _NOT_FOR_MODELS.sub("_", prefix + name)[:_LONGEST_NAME]


def _withheld(name: str, offers: Sequence[OfferedTool]) -> WithheldTool:
    servers = tuple(dict.fromkeys(offer.server for offer in offers))
    if name in RESERVED:
        return WithheldTool(name, servers, f"{name!r} is a reserved name. Give the server a prefix.")
    tools = ", ".join(f"{offer.definition.name} of {offer.server}" for offer in offers)
    # A prefix is for all tools of a server, so it does not help where names became alike only because models take no others.
    way_out = "Give one of the servers a prefix." if len(servers) > 1 else "Rename one of them on the server."
    return WithheldTool(name, servers, f"{len(offers)} tools are called {name!r} by the model ({tools}). {way_out}")


def _left_out(server: str, tool: UnusableTool) -> WithheldTool:
    return WithheldTool(
        tool.name, (server,), f"{server} offers a tool that cannot be used: {tool.problem}. Correct it on the server."
    )


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    more = f", and {len(every) - _MOST_LISTED} more" if len(every) > _MOST_LISTED else ""
    return ", ".join(every[:_MOST_LISTED]) + more
