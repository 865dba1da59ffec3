"""Make untrusted text safe to print on a terminal: keep what people write, drop control and deceptive characters.

`str.isprintable` says no to what ordinary text is full of: spaces that do not break or are as wide as a letter, the joiners of Persian and
of emoji, soft hyphens, and every letter that is younger than this Python. So what is replaced is listed here instead.
"""

import re

_STEERING = r"\x00-\x08\x0b-\x1f\x7f-\x9f"
"""Control characters, which move the cursor, paint and answer; all but newline and tab."""

_TURNING = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
"""Turn the direction of writing round, so that a text reads otherwise than it is; those behind U+2069 are deprecated."""

_BREAKING = r"\u2028\u2029"
"""Are the end of a line to some programs, and not to others."""

_NO_TEXT = r"\ud800-\udfff\ue000-\uf8ff\ufdd0-\ufdef\ufff0-\ufffb\U000f0000-\U0010ffff" + "".join(
    rf"\U{plane:04x}fffe\U{plane:04x}ffff" for plane in range(0xF)
)
"""Halves of a character, what everybody may use for something else, what will never be a character, and marks of annotations."""

_UNSEEN = r"\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
"""Tags, which nobody sees and a model can read, and their like that are yet to come; in between are variants of Chinese characters."""

_FLAG = "\N{WAVING BLACK FLAG}"
_REGION = r"[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
"""The one use of tags that is left: behind a flag they make it that of a region, such as Scotland."""

# What can begin it is one set of characters: so the search for it is a quick one. It is compiled when it is first needed: that takes a few
# milliseconds, and most commands never need it.
_FOUND = rf"[{_STEERING}{_TURNING}{_BREAKING}{_NO_TEXT}{_UNSEEN}{_FLAG}](?:(?<={_FLAG}){_REGION})?"


def printable(text: str) -> str:
    """A text without what would steer the terminal it is shown on, or show another text than it is.

    Newlines and tabs are left, those of Windows too, as plain newlines. U+FFFD stands for each character that is not.
    """
    if text.replace("\n", "").replace("\t", "").isprintable():
        return text  # nearly all that is ever shown, and at once
    return re.sub(_FOUND, _shown, text.replace("\r\n", "\n"))


def _shown(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith(_FLAG) else "\N{REPLACEMENT CHARACTER}"
