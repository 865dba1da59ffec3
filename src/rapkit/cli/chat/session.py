"""A chat session in a terminal: follow a thread, send messages, answer its questions."""

import asyncio
import signal
import time
from collections.abc import Coroutine, Iterable
from functools import partial
from typing import Any

from rapkit.cli.agent_api import AgentApi, StreamEvent
from rapkit.cli.chat.background_feed import BackgroundFeed, FeedEnded, in_thread
from rapkit.cli.chat.block import Block
from rapkit.cli.chat.child_messages import last_words
from rapkit.cli.chat.commands import CommandCompleter, Commands
from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.chat.history import History, history_path
from rapkit.cli.chat.join_thread import join
from rapkit.cli.chat.journal_renderer import note, problem
from rapkit.cli.chat.live_text import live_text
from rapkit.cli.chat.picker import Fragments, Picker
from rapkit.cli.chat.question_picker import QuestionPicker, is_question
from rapkit.cli.chat.screen import Screen
from rapkit.cli.chat.sender import Sender
from rapkit.cli.chat.server_watch import Look, ServerWatch
from rapkit.cli.chat.toolbar import toolbar
from rapkit.cli.chat.unsent import UnsentMessage
from rapkit.cli.chat.warning_handler import show_warnings
from rapkit.cli.reconnecting_stream import ConnectionLost, Reconnected
from rapkit.cli.threads.thread_lookup import path_of
from rapkit.errors import RapkitError

_SETTLING = 0.05  # entries come in bursts: one look for all of them
_FAMILY_INTERVAL = 2.0
_CALLS_INTERVAL = 5.0
_HINT_SECONDS = 2.0
_OVER = "That question is over: it was answered elsewhere, or nobody waits for the answer any more."
_HELD = "Not sent: you began this as the answer to a question that is over. Enter again sends it as a message."


class Chat:
    """Until the user leaves; `when_left` says what becomes of threads then. `displayed` is the thread on the screen.

    `look_at_servers` asks those of an agent in this process.
    """

    when_left = "threads go on without you"

    def __init__(self, api: AgentApi, user_id: str | None = None, look_at_servers: Look | None = None) -> None:
        self.api = api
        self.displayed = DisplayedThread()
        self._feed: BackgroundFeed | None = None
        self._typed: list[str] = []
        self._entering, self._looking = asyncio.Event(), asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._hint: tuple[str, float] | None = None
        self._commands, self._asking = Commands(self), QuestionPicker(self)
        self._screen = Screen(
            live=self._live,
            toolbar=self._toolbar,
            entered=self._entered,
            interrupted=self._interrupted,
            left=self._left,
            held=lambda: self.print([problem(_HELD)]),
            completer=CommandCompleter(self._commands),
            history=History(history_path()),
        )
        self._servers = ServerWatch(look_at_servers or (lambda: None), self._warn)
        self._sender = Sender(api, user_id, begun=self._begun, refused=self._refused, changed=self._screen.redraw)

    async def run(self, greeting: Iterable[Block], thread_id: str | None) -> None:
        """Chat, in that thread or in a new one."""
        self.print(greeting)
        if thread_id is not None:
            await self.follow(thread_id)
        self.start(self._enter_all())
        self.start(self._sender.run())
        self.start(self._look_again_and_again())
        self.start(self._servers.run())
        try:
            with show_warnings(self._servers.warn):
                await self._screen.run()
        finally:
            self._stop_following()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._failure is not None:
            raise self._failure

    @property
    def not_sent(self) -> list[str]:
        """What was said and never reached the agent."""
        typed = [text for text in self._typed if self._commands.read(text) is None]
        return [message.text for message in self._sender.unsent.not_stored] + typed

    @property
    def ended_by(self) -> signal.Signals | None:
        """The signal that ended the chat, if it was one."""
        return self._screen.ended_by

    @property
    def columns(self) -> int:
        """How wide the screen is."""
        return self._screen.columns

    def print(self, blocks: Iterable[Block]) -> None:
        """Show something above the line that the user types in."""
        self._screen.print(blocks)

    def _warn(self, text: str) -> None:
        self.print([Block(text, "! ", "dim")])

    @property
    def picker(self) -> Picker | None:
        """What the user can choose from right now."""
        return self._screen.picker

    @picker.setter
    def picker(self, picker: Picker | None) -> None:
        self._screen.picker = picker
        self._screen.redraw()

    def end_question(self) -> None:
        """The question that is shown is over, and not because the user has answered it. They are told, as they may just be about to."""
        self._screen.end_picker()
        self.print([note(_OVER)])

    def leave(self) -> None:
        """End the chat."""
        self._screen.leave()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside; it ends with the chat. An unexpected failure ends the chat."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self.leave()

    async def follow(self, thread_id: str) -> None:
        """Go to a thread, and show its last lines. `AgentRefused` if there is none."""
        displayed, blocks, after = await in_thread(lambda: join(self.api, thread_id))
        self._stop_following()
        self.displayed = displayed
        self.print(blocks)
        if not displayed.is_closed:
            self._listen(displayed, after)
        self._asking.offer()
        self._looking.set()

    def begin(self) -> None:
        """Leave the thread as it is; the next message begins another."""
        self._stop_following()
        self.displayed = DisplayedThread()
        self.print([note("A new thread: it begins with your next message.")])

    def look_soon(self) -> None:
        """Learn how the thread on the screen is, in a moment."""
        self._looking.set()

    async def look(self) -> None:
        """Learn how the thread on the screen is right now."""
        await self._look(self.displayed)

    def ask_again(self) -> None:
        """Show a question that was left open."""
        self._asking.again()

    def give_back(self, text: str) -> None:
        """Put something that was not sent where the user can send it, unless they type something else already."""
        if not self._screen.buffer.text:
            self._screen.buffer.insert_text(text)

    # What the user does

    def _entered(self, text: str) -> None:
        self._hint = None
        self._typed.append(text)
        self._entering.set()

    async def _enter_all(self) -> None:
        """One after the other: what is typed after /switch is meant for the other thread."""
        while True:
            await self._entering.wait()
            self._entering.clear()
            while self._typed:
                text = self._typed[0]
                command = self._commands.read(text)
                if command is not None:
                    await self._commands.carry_out(*command)
                else:
                    self._say(text)
                self._typed.remove(text)

    def _say(self, text: str) -> None:
        if self.displayed.is_closed:
            self._stop_following()
            self.displayed = DisplayedThread()
        self._sender.say(self.displayed, text.strip())

    def _interrupted(self) -> None:
        if self._screen.buffer.text:
            self._screen.clear()
            self._hint = ("Ctrl-C again leaves", time.monotonic() + _HINT_SECONDS)
        elif self.displayed.status == "running" and not self._hinted():
            self._hint = ("it goes on; Ctrl-C again leaves, /cancel stops a call", time.monotonic() + _HINT_SECONDS)
        else:
            self.leave()
        self._screen.redraw()

    def _left(self, picker: Picker) -> None:
        if is_question(picker):
            self._hint = ("left open: /answer shows it again", time.monotonic() + _HINT_SECONDS)
        self._asking.leave(picker)

    # What the agent does

    def _told(
        self, displayed: DisplayedThread, happened: StreamEvent | ConnectionLost | Reconnected | FeedEnded
    ) -> None:
        if displayed is not self.displayed:
            return
        if isinstance(happened, FeedEnded):
            if happened.problem is not None:
                self.print([problem(happened.problem)])
            elif displayed.is_closed:
                self.print([Block("Your next message begins a new thread; /threads lists the others.", "  ", "dim")])
                self._sender.unsent.drop_stored(displayed)
            return
        if isinstance(happened, StreamEvent) and happened.kind == "entry" and happened.data["kind"] == "user":
            self._sender.unsent.heard(displayed, happened.data)
        blocks = displayed.take(happened)
        if blocks:
            self.print(blocks)
        if isinstance(happened, Reconnected):
            self._sender.hurry()
        if isinstance(happened, Reconnected) or (isinstance(happened, StreamEvent) and happened.kind != "delta"):
            self._looking.set()
        self._asking.offer()
        self._screen.redraw()

    def _begun(self, displayed: DisplayedThread) -> None:
        if displayed is self.displayed:
            self._listen(displayed, None)

    def _refused(self, message: UnsentMessage, why: str) -> None:
        self.print([problem(f"Not sent: {why}")])
        self.give_back(message.text)

    def _listen(self, displayed: DisplayedThread, after: str | None) -> None:
        self._feed = BackgroundFeed(
            self.api, str(displayed.id), after, lambda happened: self._told(displayed, happened)
        )

    def _stop_following(self) -> None:
        if self._feed is not None:
            self._feed.close()
            self._feed = None
        self._sender.unsent.drop_stored(self.displayed)
        self._screen.picker = None

    # Beside

    async def _look_again_and_again(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._look_interval):
                    await self._looking.wait()
            except TimeoutError:
                pass
            await asyncio.sleep(_SETTLING)
            self._looking.clear()
            try:
                await self._look(self.displayed)
            except RapkitError:
                await asyncio.sleep(_FAMILY_INTERVAL / 2)  # the stream tells if it is away

    @property
    def _look_interval(self) -> float | None:
        """Neither a child's questions nor that a callback was refused show in the stream."""
        if self.displayed.children:
            return _FAMILY_INTERVAL
        return _CALLS_INTERVAL if self.displayed.pending or self.displayed.subscriptions else None

    async def _look(self, displayed: DisplayedThread) -> None:
        if displayed.id is None or displayed.is_closed:
            displayed.pending, displayed.subscriptions, displayed.children, displayed.questions = [], [], [], {}
            self._asking.offer()
            return
        path = path_of(displayed.id)
        detail = await in_thread(lambda: self.api.get(path))
        blocks = displayed.look(detail)
        if displayed.children or displayed.asking_children:
            family = await in_thread(lambda: self.api.get(f"{path}/family"))
            for child in displayed.talking_children(family):
                words = await in_thread(partial(last_words, self.api, child))
                blocks += displayed.transcript.child_said(child, words)
            blocks += displayed.look_at_family(family)
        if displayed is self.displayed:
            if blocks:
                self.print(blocks)
            self._asking.offer()

    # What is shown beside the transcript

    def _hinted(self) -> str | None:
        return self._hint[0] if self._hint and time.monotonic() < self._hint[1] else None

    def _toolbar(self, width: int) -> Fragments:
        return toolbar(self.displayed, len(self._sender.unsent.not_stored), self._hinted(), width)

    def _live(self, width: int) -> Fragments:
        return live_text(self.displayed, self._sender.unsent, width)
