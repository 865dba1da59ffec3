"""The text above the input line that shows what is happening now."""

from rapkit.cli.chat.block import wrapped
from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.chat.picker import Fragments
from rapkit.cli.chat.unsent import Unsent
from rapkit.printable import printable


def live_text(displayed: DisplayedThread, unsent: Unsent, width: int) -> Fragments:
    """What the model has said so far, and what the user has said that the thread has not read yet, each after an empty line."""
    parts: Fragments = []
    if displayed.saying.strip():
        parts.append(("", _fitted(displayed.saying.lstrip("\n"), width)))
    for message in unsent.of(displayed):
        state = "not read yet" if message.is_stored else "not sent yet"
        said = _fitted(f"{message.text} ({state})", width - 2).replace("\n", "\n  ")
        parts.append(("class:live.unsent", f"> {said}"))
    fragments: Fragments = []
    for part in parts:
        fragments += [("", "\n\n" if fragments else "\n"), part]
    return fragments


def _fitted(text: str, width: int) -> str:
    lines = printable(text).expandtabs(4).split("\n")
    return "\n".join(row for line in lines for row in wrapped(line, width))
