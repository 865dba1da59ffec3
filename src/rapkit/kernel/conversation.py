"""The conversation that a model is shown, independent of any provider.

It alternates: something heard, something said, something heard. It begins with a text that was heard and ends with something heard. Every
call that is said is answered in what is heard next, and nothing else is: strict providers refuse anything else, and no provider minds.
"""

from dataclasses import dataclass
from typing import Any

from rapkit.protocol import ContentItem


@dataclass(frozen=True, slots=True)
class SaidCall:
    """A call of a tool as the model is shown it; `id` is the one on the wire."""

    id: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Said:
    """What the model said, or is made to believe it said. `thoughts` are for the provider that made them, and for no other."""

    text: str = ""
    calls: tuple[SaidCall, ...] = ()
    thoughts: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a call gave: never empty."""

    call_id: str
    name: str
    content: tuple[ContentItem, ...]


@dataclass(frozen=True, slots=True)
class Heard:
    """What the model hears: answers to the calls said just before, then texts of the user."""

    answers: tuple[ToolAnswer, ...] = ()
    texts: tuple[str, ...] = ()


Conversation = tuple[Heard | Said, ...]
