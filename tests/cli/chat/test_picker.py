"""Choosing one of several things."""

from rapkit.cli.chat.picker import Picker


def rows(picker: Picker, width: int = 60, *, active: bool = True) -> list[str]:
    return "".join(text for _, text in picker.fragments(width, active=active)).split("\n")


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


def test_many_options_scroll_and_long_ones_are_clipped() -> None:
    picker = Picker("key", "Which of these many?", [f"option {n} " * 9 for n in range(20)], lambda _: None)
    for _ in range(12):
        picker.move(1)
    shown = rows(picker, 30)
    assert any(row.startswith("▸ 13 option 12") for row in shown)
    assert all(len(row) <= 30 for row in shown)


def test_it_says_what_can_be_done() -> None:
    words = Picker("key", "Name?", [], lambda _: None, said=lambda _: None, dismissed=lambda: None)
    assert rows(words)[-1] == "  Type your answer · Esc: later · Ctrl-X dismisses it"
    assert rows(words, active=False)[-1] == "  Enter sends your words as the answer."
    command = Picker("/switch", "Which?", ["a"], lambda _: None)
    assert rows(command)[-1] == "  ↑ ↓ or a number, Enter chooses · Esc: none"  # nothing would ask again later
    assert rows(command, active=False)[-1] == "  Clear your line to choose."
