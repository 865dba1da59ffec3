"""`rapkit demo`."""

import signal
import sys
import tempfile
import textwrap
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.text import Text

from rapkit.cli import demo_tools
from rapkit.cli.demo_server import Call, DemoFailed, DemoServer
from rapkit.cli.listener import Listener
from rapkit.protocol import ToolResult

_SLOW = 3
_KILLED_AFTER = 1.0
_LISTEN_ON_FOR = 1.0
_PATIENCE = 15.0
_WIDTH = 94

_INTRODUCTION = """\
An agent calls a tool with a POST, and the tool server answers at once: I have it. The result
is a POST of its own, to the call's callback URL, a millisecond or three days later. In between
nobody holds a connection open, and what was acknowledged is on disk. So it should not matter
who dies meanwhile. Let us see."""

_CONCLUSION = """\
Nothing that was acknowledged was lost, and nothing was answered twice.

Now your own tools:  rapkit serve FILE.py
                     rapkit call http://127.0.0.1:8001 NAME key=value"""


@click.command()
def command() -> None:
    """See what RAP is for: a tool server is killed with -9 while calls run, and each of them is still answered, once.

    Takes some ten seconds, needs no network and no key, and leaves nothing behind.
    """
    # A plain exit, so that the processes and the folder go the way they go at the end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    story = _Story()
    try:
        with tempfile.TemporaryDirectory(prefix="rapkit-demo-") as folder, Listener() as listener:
            _Demo(story, Path(folder), listener).run()
    except DemoFailed as failure:
        story.end(f"This should not have happened: {failure}", "bold red")
        sys.exit(1)
    except KeyboardInterrupt:
        story.end("Stopped half-way; the server and its files are gone.", "yellow")
        sys.exit(130)


class _Story:
    """What is printed: chapters, and in them events with the seconds since the beginning."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._began = time.monotonic()

    def chapter(self, title: str) -> None:
        self._console.print()
        self._console.print(Text(title, "bold"))

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def event(self, text: str) -> None:
        elapsed = time.monotonic() - self._began
        style = "cyan" if text.startswith("$") else ""
        self._console.print(Text.assemble((f"{elapsed:6.2f} s  ", "dim"), (text, style)))

    def remark(self, text: str) -> None:
        indent = " " * 10
        wrapped = textwrap.fill(text, _WIDTH, initial_indent=indent, subsequent_indent=indent)
        self._console.print(Text(wrapped, "dim"))

    def end(self, text: str, style: str) -> None:
        self._console.print()
        self._console.print(Text(text, style))


class _Demo:
    def __init__(self, story: _Story, folder: Path, listener: Listener) -> None:
        self._story = story
        self._folder = folder
        self._listener = listener
        self._answers = 0

    def run(self) -> None:
        story = self._story
        story.chapter("RAP, the Reactive Agent Protocol, in ten seconds")
        story.say(_INTRODUCTION)
        with DemoServer(self._folder) as server:
            story.chapter("A tool server, in a process of its own")
            self._start(server)
            story.chapter("A call")
            quick = self._call(server, "forecast", city="Oslo")
            self._expect(quick)
            story.chapter(f"Two calls that take {_SLOW} seconds")
            report = self._call(server, "climate_report", city="Oslo", seconds=_SLOW)
            story.remark("It only reads, so it may be begun again.")
            postcard = self._call(server, "send_postcard", to="Ada", seconds=_SLOW)
            story.remark("It must not happen twice.")
            story.chapter("The server is killed while they run")
            self._kill(server)
            self._start(server)
            story.chapter("The answers still come")
            self._expect(report, postcard)
            story.chapter("Once each")
            self._check_that_it_was_once(server, quick, report, postcard)
        story.end(_CONCLUSION, "green")

    def _start(self, server: DemoServer) -> None:
        self._story.event(f"$ rapkit serve {server.target} --port {server.port} --store {server.store}")
        operations = server.start()
        self._story.event(f"process {server.pid} serves {', '.join(operations)}")

    def _call(self, server: DemoServer, operation: str, **arguments: Any) -> Call:
        call = Call.make(operation, arguments, self._listener.url)
        seconds = server.send(call)
        self._story.event(f"{call.in_words}  acknowledged in {seconds * 1000:.1f} ms")
        return call

    def _kill(self, server: DemoServer) -> None:
        deadline = time.monotonic() + _PATIENCE
        while not self._postcards:
            if time.monotonic() > deadline:
                raise DemoFailed("the postcard was acknowledged and then not begun.")
            time.sleep(0.02)
        time.sleep(_KILLED_AFTER)
        if early := self._listener.next(0):
            raise DemoFailed(f"an answer came before the server could be killed: {early}. Is this machine very busy?")
        self._story.event(f"$ kill -9 {server.pid}")
        server.kill()
        self._story.event(f"port {server.port} is dead, and no answer has come")

    def _expect(self, *calls: Call) -> None:
        """One answer to each of the calls, in whatever order."""
        waiting = {call.id: call for call in calls}
        while waiting:
            message = self._listener.next(_PATIENCE)
            if not isinstance(message, ToolResult) or message.id not in waiting:
                raise DemoFailed(f"after {_PATIENCE:g} s for {list(waiting)} there was {message}.")
            self._answers += 1
            call, text = waiting.pop(message.id), message.text or ""
            self._story.event(f"{call.operation} answers, {_in_words(call.age)} after the call:")
            self._story.remark(f'"{text}"')
            self._judge(call, text)

    def _judge(self, call: Call, text: str) -> None:
        lost = "not known whether" in text
        if call.operation == "send_postcard":
            if not lost:
                raise DemoFailed("the postcard should have been reported as interrupted.")
            self._story.remark(
                f"Postcards in the post box: {self._postcards}. No other is posted; the agent knows what to look into."
            )
        elif text.startswith("Error:"):
            raise DemoFailed(f"{call.operation} should have been answered.")

    def _check_that_it_was_once(self, server: DemoServer, *calls: Call) -> None:
        times = [server.send(call) for call in calls]
        took = ", ".join(f"{seconds * 1000:.1f}" for seconds in times)
        self._story.event(f"the same {len(calls)} calls sent again, as by a caller that missed our 200: {took} ms")
        if late := self._listener.next(_LISTEN_ON_FOR):
            raise DemoFailed(f"there was one more answer: {late}.")
        self._story.event(
            f"{len(calls)} calls, {self._answers} answers, none in a further {_LISTEN_ON_FOR:g} s; "
            f"postcards posted: {self._postcards}"
        )
        if self._postcards != 1:
            raise DemoFailed("there should be one postcard.")

    @property
    def _postcards(self) -> int:
        postbox = self._folder / demo_tools.POSTBOX
        return len(postbox.read_text().splitlines()) if postbox.exists() else 0


def _in_words(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds >= 0.1 else f"{seconds * 1000:.1f} ms"
