"""The chat's screen: scrolling output on top; below it the live text, the input line and the toolbar."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.completion import Completer
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import History
from prompt_toolkit.input.typeahead import store_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.patch_stdout import patch_stdout
from prompt_toolkit.styles import Style
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from rapkit.cli.chat.block import Block
from rapkit.cli.chat.grace_period import GracePeriod
from rapkit.cli.chat.picker import Fragments, Picker

_STYLE = Style.from_dict(
    {
        "prompt": "bold ansicyan",
        "nbsp": "nounderline",  # a space like any other
        "live.unsent": "ansigray",
        "toolbar.status": "bg:#303030 #e0e0e0",
        "toolbar.away": "bg:#870000 #ffffff bold",
        "toolbar.call": "ansigray",
        "toolbar.asks": "ansiyellow",
        "picker.title": "bold ansiyellow",
        "picker.at": "bold ansicyan",
        "picker.hint": "ansigray",
        "completion-menu": "bg:#303030 #e0e0e0",
        "completion-menu.completion.current": "bg:#005f87 #ffffff",
        "completion-menu.meta.completion": "bg:#303030 #a0a0a0",
        "completion-menu.meta.completion.current": "bg:#005f87 #ffffff",
    }
)
_PROMPT = "> "
_MOST_INPUT_ROWS = 8
_BESIDE_THE_LIVE_TEXT = 10
_LOW = 12  # rows: with fewer, a picker leaves room for nothing that can wait
_ESCAPE_WAIT = 0.2


class Screen:
    """Where the chat is shown and typed.

    `live` and `toolbar` give what stands above and below the typed line, for a width. `entered` is called with what the user enters,
    `interrupted` at Ctrl-C, and `left` at Esc, with the picker that was left. `held` is called when words are entered that were begun as
    the answer to a question that is over: they stay where they are. `ended_by` is the signal that ended it, if one did.
    """

    def __init__(
        self,
        *,
        live: Callable[[int], Fragments],
        toolbar: Callable[[int], Fragments],
        entered: Callable[[str], None],
        interrupted: Callable[[], None],
        left: Callable[[Picker], None],
        held: Callable[[], None],
        completer: Completer,
        history: History,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False, legacy_windows=False)
        self._entered, self._interrupted, self._left, self._held = entered, interrupted, left, held
        self._live, self._toolbar = live, toolbar
        self._to_print: list[Block] = []
        self._nothing_printed = True
        self._grace_period = GracePeriod(clock)
        self.picker: Picker | None = None
        self.ended_by: signal.Signals | None = None
        self.buffer = Buffer(
            multiline=True,
            completer=completer,
            complete_while_typing=Condition(lambda: self.buffer.text.startswith("/")),
            history=history,
            on_text_changed=self._changed,
        )
        self._app: Application[None] = Application(
            layout=self._layout(),
            key_bindings=self._keys(),
            style=_STYLE,
            refresh_interval=1.0,
            erase_when_done=True,
            output=_output(),
            before_render=self._read_out,
        )
        self._app.ttimeoutlen = _ESCAPE_WAIT

    async def run(self) -> None:
        """Show it until `leave`. Whatever else writes to the terminal meanwhile, such as a warning, appears above the typed line."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self._end, number)
        with self._app.input.raw_mode():
            self._take_what_was_typed_ahead()
            with patch_stdout():
                await self._app.run_async(pre_run=self._write)
        self._write()

    def leave(self) -> None:
        """End `run`."""
        if self._app.is_running and not self._app.is_done:
            self._app.exit()

    def _end(self, number: signal.Signals) -> None:
        self.ended_by = number
        self.leave()

    def _take_what_was_typed_ahead(self) -> None:
        """Before we had the terminal, it made new lines of every Enter, and showed what was typed."""
        keys: list[KeyPress] = []
        while read := self._app.input.read_keys():
            keys += [KeyPress(Keys.ControlM, "\r") if each.key == Keys.ControlJ else each for each in read]
        if keys and keys[-1].key != Keys.ControlM:
            self._app.output.write_raw("\r")
            self._app.output.erase_end_of_line()
            self._app.output.flush()
        store_typeahead(self._app.input, keys)

    def print(self, blocks: Iterable[Block]) -> None:
        """Print above the typed line, in the order of the calls."""
        self._to_print += blocks
        if self._app.is_running and not self._app.is_done:
            # By hand: prompt_toolkit's own way hands the terminal back while it writes, and an Enter that is pressed just then becomes
            # a new line instead.
            self._app.renderer.erase()
            self._write()
            self.redraw()

    def end_picker(self) -> None:
        """Take away what the user can choose from: it is over, and not by what they did."""
        picker, self.picker = self.picker, None
        if picker is not None:
            self._grace_period.begin(words_begun=picker.said is not None and bool(self.buffer.text.strip()))
        self.redraw()

    def clear(self) -> None:
        """Empty the line that the user types in."""
        self.buffer.reset()
        self._grace_period.forget_words()

    def redraw(self) -> None:
        """Show what has changed."""
        self._app.invalidate()

    @property
    def columns(self) -> int:
        """How wide it is now."""
        return self._app.output.get_size().columns

    @property
    def _rows(self) -> int:
        return self._app.output.get_size().rows

    def _write(self) -> None:
        blocks, self._to_print = self._to_print, []
        width = self.columns
        for block in blocks:
            if block.apart and not self._nothing_printed:
                self._console.print(Text(""))
            self._nothing_printed = False
            for line in block.lines(width):
                self._console.print(line, soft_wrap=True)
        self._console.file.flush()

    def _layout(self) -> Layout:
        def part(fragments: Callable[[], Fragments]) -> ConditionalContainer:
            window = Window(FormattedTextControl(lambda: [*fragments()]), dont_extend_height=True, wrap_lines=True)
            return ConditionalContainer(window, Condition(lambda: bool(fragments())))

        typed = Window(
            BufferControl(self.buffer, input_processors=[BeforeInput(_PROMPT, "class:prompt")]),
            height=Dimension(min=1, max=_MOST_INPUT_ROWS),
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=lambda line, wrap: [("", " " * len(_PROMPT))] if line or wrap else [],
        )
        parts = [
            part(self._live_tail),
            part(self._picker),
            typed,
            CompletionsMenu(max_height=8),
            part(self._below),
        ]
        return Layout(HSplit(parts), focused_element=typed)

    def _live_tail(self) -> Fragments:
        """The end of what goes on: as much as leaves room for the rest."""
        rows: list[Fragments] = [[]]
        for style, text in self._live(self.columns):
            first, *others = text.split("\n")
            rows[-1].append((style, first))
            rows += [[(style, other)] for other in others]
        room = max(1, self._rows - _BESIDE_THE_LIVE_TEXT)
        if self.picker is not None:
            left = self._rows - len(_lines(self._picker())) - self._typed_rows() - len(_lines(self._below()))
            if left < 1:
                return []
            room = min(room, left - 1)
        shown = [part for row in rows[-room:] if room for part in (*row, ("", "\n"))]
        # What keeps the typed line apart is an empty line, and a line with nothing in it is no line.
        return shown if any(text.strip() for _, text in shown) else [("", " ")]

    def _picker(self) -> Fragments:
        if self.picker is None:
            return []
        return self.picker.fragments(self.columns, self._picker_room(), active=not self.buffer.text)

    def _picker_room(self) -> int:
        """How many rows there are for a picker: as many as fit on the screen beside what has to be there."""
        apart = 1 if self._rows >= _LOW else 0
        return max(1, self._rows - apart - self._typed_rows() - len(_lines(self._below())))

    def _typed_rows(self) -> int:
        rows = sum(1 + (cell_len(line) + len(_PROMPT)) // self.columns for line in self.buffer.text.split("\n"))
        return min(rows, _MOST_INPUT_ROWS)

    def _below(self) -> Fragments:
        fragments = self._toolbar(self.columns)
        return fragments[:1] if self.picker is not None and self._rows < _LOW else fragments

    def _read_out(self, _app: Application[None]) -> None:
        """Before it is shown: users must be able to read what they answer, so what does not fit here is printed above, all of it."""
        picker = self.picker
        if picker is not None and not picker.is_read_out and picker.is_cut(self.columns, self._picker_room()):
            picker.is_read_out = True
            self.print(picker.whole())

    def _changed(self, _buffer: Buffer) -> None:
        if not self.buffer.text:
            self._grace_period.forget_words()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()
        picking = Condition(lambda: self.picker is not None and not self.buffer.text)

        @keys.add("enter")
        def _enter(event: KeyPressEvent) -> None:
            self._enter()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def _newline(event: KeyPressEvent) -> None:
            self.buffer.insert_text("\n")

        @keys.add("c-c")
        @keys.add("<sigint>")
        def _interrupt(event: KeyPressEvent) -> None:
            self._interrupted()

        @keys.add("c-d", filter=Condition(lambda: not self.buffer.text))
        def _end(event: KeyPressEvent) -> None:
            self.leave()

        @keys.add("c-z")
        def _suspend(event: KeyPressEvent) -> None:
            event.app.suspend_to_background()

        @keys.add("up", filter=picking)
        @keys.add("down", filter=picking)
        @keys.add("s-tab", filter=picking)
        @keys.add("tab", filter=picking)
        def _move(event: KeyPressEvent) -> None:
            if self.picker:
                self.picker.move(-1 if event.key_sequence[0].key in ("up", "s-tab") else 1)

        for digit in "123456789":
            keys.add(digit, filter=picking)(self._digit)

        @keys.add("escape", filter=picking, eager=True)
        def _later(event: KeyPressEvent) -> None:
            picker, self.picker = self.picker, None
            if picker:
                self._left(picker)

        @keys.add("c-x", filter=picking & Condition(lambda: bool(self.picker and self.picker.dismissed)), eager=True)
        def _dismiss(event: KeyPressEvent) -> None:
            picker, self.picker = self.picker, None
            if picker and picker.dismissed:
                picker.dismissed()

        def ignore(event: KeyPressEvent) -> None:
            """For a question that is not there any more. Else a number, or an old line and Enter, would be said to the agent."""

        too_late = Condition(lambda: self._grace_period.is_now and not self.buffer.text)
        for key in (*"123456789", "up", "down", "s-tab", "tab", "enter", "c-x"):
            keys.add(key, filter=too_late, eager=True)(ignore)
        return keys

    def _digit(self, event: KeyPressEvent) -> None:
        if self.picker:
            self.picker.move_to(int(event.data))

    def _enter(self) -> None:
        text = self.buffer.text.encode(errors="replace").decode()  # what is no UTF-8 is typed as surrogates
        picker = self.picker
        if not text.strip():
            if picker and picker.pick() and self.picker is picker:
                self.picker = None
            return
        if not text.startswith("/") and self._grace_period.claim_words():
            self._held()
            return
        self.buffer.append_to_history()
        self.buffer.reset()
        if picker and picker.said and not text.startswith("/"):
            self.picker = None
            picker.said(text)
        else:
            self._entered(text)


def _lines(fragments: Fragments) -> list[str]:
    return "".join(text for _, text in fragments).split("\n") if fragments else []


def _output() -> Vt100_Output:
    output = Vt100_Output.from_pty(sys.stdout, os.environ.get("TERM"), ColorDepth.from_env())
    # Where the cursor is need not be asked: we take no more room than we need. And an answer that comes late looks like typed.
    output.enable_cpr = False
    return output
