"""How text is fitted into a width."""

import pytest
from rich.cells import cell_len

from rapkit.cli.chat.block import Block, clipped, plain, wrapped


def test_words_are_not_broken_and_what_follows_stands_below_the_first() -> None:
    block = Block("a long line, and then\n  an indented one", "← ")
    assert [line.plain for line in block.lines(16)] == ["← a long line,", "  and then", "    an indented", "  one"]


def test_a_url_stays_in_one_piece() -> None:
    url = "https://example.com/" + "x" * 60
    assert list(wrapped(f"See {url} there", 20)) == ["See", url, "there"]
    assert [line.plain for line in Block(f"{url} {url}", whole=True).lines(20)] == [f"{url} {url}"]


def test_wide_letters_count_twice() -> None:
    assert list(wrapped("東京 京都 大阪", 10)) == ["東京 京都", "大阪"]


def test_what_takes_no_room_counts_for_nothing() -> None:
    assert list(wrapped("👩\u200d💻👩\u200d💻 👩\u200d💻👩\u200d💻 می\u200cروم", 10)) == [
        "👩\u200d💻👩\u200d💻 👩\u200d💻👩\u200d💻",
        "می\u200cروم",
    ]


@pytest.mark.parametrize("space", ["\u00a0", "\u202f"], ids=["wide", "narrow"])
def test_a_line_does_not_break_at_a_space_that_does_not(space: str) -> None:
    assert list(wrapped(f"It is 12{space}000{space}km", 10)) == ["It is", f"12{space}000{space}km"]


@pytest.mark.parametrize("width", range(12))
def test_what_is_clipped_fits(width: int) -> None:
    for text in (
        "a line of words",
        "東京京都大阪神戸",
        "short",
        "👩\u200d💻👩\u200d🚀 می\u200cروم",
        "全\u3000角\u00ad\u200b",
    ):
        assert cell_len(clipped(text, width)) <= max(0, width)


def test_clipping_says_that_something_is_missing() -> None:
    assert clipped("one two\nthree", 80) == "one two three"
    assert clipped("one two three", 8) == "one two…"


def test_paragraphs_are_apart() -> None:
    assert plain([Block("a", apart=True), Block("b"), Block("c", apart=True)], 80) == "a\nb\n\nc"
