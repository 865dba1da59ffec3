"""Choosing one of several things."""

from rapkit.cli.chat.block import plain
from rapkit.cli.chat.picker import Picker


def rows(picker: Picker, width: int = 60, height: int = 30, *, active: bool = True) -> list[str]:
    return "".join(text for _, text in picker.fragments(width, height, active=active)).split("\n")


def test_the_mark_goes_round_and_to_numbers() -> None:
    picked: list[int] = []
    picker = Picker("key", "Which?", ["a", "b", "c"], picked.append, at=2, default=2)
    assert rows(picker)[:4] == ["? Which?", "  1 a", "  2 b", "▸ 3 c (default)"]
    picker.move(1)
    assert "▸ 1 a" in rows(picker)
    picker.move(-1)
    assert "▸ 3 c (default)" in rows(picker)
    picker.move_to(2)
    picker.move_to(7)
    assert picker.pick()
    assert picked == [1]


def test_nothing_is_taken_before_something_is_marked() -> None:
    picked: list[int] = []
    picker = Picker("key", "Which?", ["a", "b"], picked.append, at=None)
    assert not picker.pick()
    picker.move(-1)
    assert picker.pick()
    assert picked == [1]
    assert not Picker("key", "What?", [], picked.append, said=lambda _: None).pick()


def test_many_options_scroll() -> None:
    picker = Picker("key", "Which of these many?", [f"option {n}" for n in range(20)], lambda _: None)
    assert rows(picker)[9:11] == ["  9 option 8", "  20 in all, more with ↑ ↓"]
    for _ in range(12):
        picker.move(1)
    assert rows(picker)[1:11] == [
        *(f"  {n + 1} option {n}" for n in range(4, 12)),
        "▸ 13 option 12",
        "  20 in all, more with ↑ ↓",
    ]


def test_long_options_are_wrapped() -> None:
    long = "to deploy it at once, and to tell everybody who wants to know"
    picker = Picker("key", "Which?", [long, "n" * 30, "no\nnever"], lambda _: None, at=1, default=0)
    assert rows(picker, 30)[:8] == [
        "? Which?",
        "  1 to deploy it at once,",
        "    and to tell everybody",
        "    who wants to know",
        "    (default)",
        f"▸ 2 {'n' * 24}",
        f"    {'n' * 6}",
        "  3 no never",
    ]


def test_what_the_mark_is_at_is_on_the_screen_however_long_the_options_are() -> None:
    options = [f"option {n} " + "of many words " * 30 for n in range(5)]
    picker = Picker("key", "Which?", options, lambda _: None)
    for number in range(1, 6):
        shown = rows(picker, 40, 12)
        assert len(shown) <= 12
        assert f"▸ {number} option {number - 1} of many words of many" in shown
        assert any(row.endswith("…") for row in shown)
        assert "  5 in all, more with ↑ ↓" in shown
        picker.move(1)


def test_a_question_that_does_not_fit_says_so_and_is_whole_above() -> None:
    title = "\n".join(f"line {n}" for n in range(1, 16))
    picker = Picker("key", title, ["Allow", "Deny"], lambda _: None)
    assert rows(picker)[:5] == ["? line 1", "  line 2", "  … (13 more lines above)", "▸ 1 Allow", "  2 Deny"]
    small = rows(picker, 20, 6)
    assert small[:3] == ["? line 1", "  line 2", "  … (13 lines above)"]
    assert small[3:] == ["▸ 1 Allow", "  2 Deny", "  ↑ ↓ or a number, …"]
    assert rows(picker, 20, 4)[:3] == ["? … (15 lines above)", "▸ 1 Allow", "  2 Deny"]
    assert rows(picker, 16, 4)[0] == "? … (15 above)"
    for height in range(4, 30):
        assert len(rows(picker, 20, height)) <= height
        assert picker.is_cut(20, height)
    assert plain(picker.whole(), 80).startswith("? line 1\n  line 2\n")
    assert plain(picker.whole(), 80).endswith("  line 15\n  1 Allow\n  2 Deny")

    six = Picker("key", "\n".join("abcdef"), ["Allow", "Deny"], lambda _: None)
    assert not six.is_cut(80, 12)
    assert six.is_cut(80, 8)
    assert Picker("key", "x" * 1000, ["Allow"], lambda _: None).is_cut(80, 30)  # one word, which no line can hold


def test_options_that_do_not_fit_are_to_be_read_above_too() -> None:
    long = "in the way that the manual describes, and with everything else that belongs to it"
    for options in (["No", long], [long]):
        picker = Picker("key", "Which?", options, lambda _: None)
        assert not picker.is_cut(80, 12)
        assert picker.is_cut(20, 6)
        assert long in plain(picker.whole(), 200)
    assert not Picker("key", "Which?", [str(n) for n in range(30)], lambda _: None).is_cut(20, 8)  # they scroll


def test_it_says_what_can_be_done() -> None:
    words = Picker("key", "Name?", [], lambda _: None, said=lambda _: None, dismissed=lambda: None)
    assert rows(words)[-1] == "  Type your answer · Esc: later · Ctrl-X dismisses it"
    assert rows(words, active=False)[-1] == "  Enter sends your words as the answer."
    command = Picker("/switch", "Which?", ["a"], lambda _: None)
    assert rows(command)[-1] == "  ↑ ↓ or a number, Enter chooses · Esc: none"  # nothing would ask again later
    assert rows(command, active=False)[-1] == "  Clear your line to choose."
