"""Keys that are pressed just after a question went away."""

import asyncio
from collections.abc import Iterator

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import DummyCompleter
from prompt_toolkit.history import InMemoryHistory
from prompt_toolkit.input import PipeInput, create_pipe_input

from rapkit.cli.chat.picker import Picker
from rapkit.cli.chat.screen import Screen
from tests.cli.command import PATIENCE

UP, ENTER = "\x1b[A", "\r"


class Desk:
    """A screen on which a question has just gone away by itself, at time 0; `entered` is what the user has said, `picked` what chosen."""

    def __init__(self, keys: PipeInput) -> None:
        self._keys = keys
        self.now = 0.0
        self.entered: list[str] = []
        self.picked: list[int] = []
        self._told = asyncio.Event()
        self.screen = Screen(
            live=lambda _width: [],
            toolbar=lambda _width: [("", "below")],
            entered=self._enter,
            interrupted=self._told.set,
            left=lambda _picker: None,
            held=lambda: None,
            completer=DummyCompleter(),
            history=InMemoryHistory(["said before"]),
            clock=lambda: self.now,
        )
        self.screen.picker = self.question()
        self.screen.end_picker()

    def question(self) -> Picker:
        """One with two options."""
        return Picker("key", "Which?", ["this", "that"], self.picked.append)

    def _enter(self, text: str) -> None:
        self.entered.append(text)

    async def press(self, *keys: str) -> None:
        """Press these; all of them have been taken when it returns."""
        self._told.clear()
        self._keys.send_text("".join(keys) + "\x03")
        await asyncio.wait_for(self._told.wait(), PATIENCE)


@pytest.fixture
def keys() -> Iterator[PipeInput]:
    with create_pipe_input() as keys, create_app_session(input=keys):
        yield keys


@pytest.mark.parametrize("pressed", ["1" + ENTER, UP + ENTER, ENTER], ids=["a number", "an arrow", "Enter"])
async def test_what_is_pressed_for_a_question_that_has_just_gone_is_for_nothing(keys: PipeInput, pressed: str) -> None:
    desk = Desk(keys)
    running = asyncio.create_task(desk.screen.run())
    await desk.press(pressed)
    assert (desk.entered, desk.screen.buffer.text) == ([], "")

    desk.screen.picker = desk.question()  # the next one comes at once, and was not meant either
    await desk.press(pressed)
    assert desk.picked == []

    desk.now = 1.0
    await desk.press("2" + ENTER)
    assert desk.picked == [1]
    await desk.press("3 pizzas" + ENTER)
    assert desk.entered == ["3 pizzas"]
    desk.screen.leave()
    await asyncio.wait_for(running, PATIENCE)


async def test_a_message_can_be_typed_at_any_time(keys: PipeInput) -> None:
    desk = Desk(keys)
    running = asyncio.create_task(desk.screen.run())
    await desk.press("no, 2 of them" + ENTER)
    assert desk.entered == ["no, 2 of them"]
    desk.screen.leave()
    await asyncio.wait_for(running, PATIENCE)
