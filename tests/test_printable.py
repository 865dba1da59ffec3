"""What is left of a stranger's text on a terminal."""

import sys
import unicodedata

import pytest

from rapkit.printable import printable

GONE = "\N{REPLACEMENT CHARACTER}"
SCOTLAND = "\U0001f3f4\U000e0067\U000e0062\U000e0073\U000e0063\U000e0074\U000e007f"
YOUNGER_THAN_THIS_PYTHON = "\U0001fac6"  # a fingerprint, of Unicode 16


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("Two lines\n\tand a tab.", id="lines and tabs"),
        pytest.param("Prix\u202f: 10\u00a0km, 5\u2009%", id="spaces that do not break"),
        pytest.param("全角\u3000空白", id="a wide space"),
        pytest.param("می\u200cروم", id="a non-joiner"),
        pytest.param("क्\u200dष", id="a joiner"),
        pytest.param("👩\u200d💻 ❤\ufe0f", id="emoji in a sequence"),
        pytest.param(f"🏴 {SCOTLAND}", id="flags"),
        pytest.param("Donau\u00addampf\u200bschiff\u2060\ufeff", id="hints where to break"),
        pytest.param("葛\U000e0100", id="a variant of a character"),
        pytest.param(YOUNGER_THAN_THIS_PYTHON, id="a new emoji"),
        pytest.param("e\u0301 \u0600", id="marks and signs"),
    ],
)
def test_what_people_write_is_shown_as_they_wrote_it(text: str) -> None:
    assert printable(text) == text


@pytest.mark.parametrize(
    "character",
    [
        pytest.param(character, id=f"U+{ord(character):04X}")
        for character in (
            *"\x00\x07\x08\x0b\x0c\r\x1b\x1f\x7f\x80\x85\x9b\x9f",
            *"\u061c\u200e\u200f\u202a\u202e\u2066\u2069\u206a\u206f",
            *"\u2028\u2029\ud800\udcff\ue000\uf8ff\ufdd0\ufff9\ufffe\U0001ffff\U000efffe\U000f0000\U0010ffff",
            *"\U000e0001\U000e0041\U000e007f\U000e0fff",
        )
    ],
)
def test_what_harms_or_deceives_is_replaced(character: str) -> None:
    assert printable(f"ä{character}\u00a0b") == f"ä{GONE}\u00a0b"
    assert printable(f"a{character}") == f"a{GONE}"


def test_no_control_bidirectional_or_private_character_is_left() -> None:
    directions = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    left = [character for character in map(chr, range(sys.maxunicode + 1)) if printable(character) == character]

    kinds = {(unicodedata.category(each), unicodedata.bidirectional(each)) for each in left if each not in "\n\t"}

    assert not {kind for kind, _ in kinds} & {"Cc", "Cs", "Co", "Zl", "Zp"}
    assert not {direction for _, direction in kinds} & directions


def test_tags_that_name_no_region_are_not_hidden_behind_a_flag() -> None:
    hidden = "".join(chr(0xE0000 + ord(new_mail)) for new_mail in "ignore all that")

    assert printable(f"🏴{hidden}") == f"🏴{GONE * len(hidden)}"
    assert printable(f"a{SCOTLAND[1:]}") == f"a{GONE * 6}"


def test_lines_that_end_as_on_windows_are_lines() -> None:
    assert printable("one\r\ntwo\r\n\x1b") == f"one\ntwo\n{GONE}"
