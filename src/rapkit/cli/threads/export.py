"""`rapkit threads export`."""

import contextlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.agent_selection import AgentSelection, query_options, reach_agent
from rapkit.cli.threads.journal_reader import read_journal
from rapkit.cli.threads.markdown import in_markdown
from rapkit.cli.threads.terminal_writer import as_json
from rapkit.cli.threads.thread_lookup import all_threads, find_thread, path_of, thread_argument
from rapkit.errors import ConfigError
from rapkit.printable import printable

Write = Callable[[str], None]
Journals = Iterable[tuple[Any, Iterator[Any]]]


@click.command(short_help="Write a thread to a file.")
@thread_argument
@click.option(
    "--format",
    "format_",
    type=click.Choice(["json", "jsonl", "markdown"]),
    default="json",
    show_default=True,
    help="One JSON document, one entry a line, or for people.",
)
@click.option("-o", "--output", metavar="FILE", help="Where to.  [default: standard output]")
@click.option("--family", is_flag=True, help="Also all threads that came of it.")
@query_options
def export(selection: AgentSelection, thread: str, format_: str, output: str | None, family: bool) -> None:
    """Write all of a THREAD: as it is now, and its whole journal.

    \b
    json      {"threads": [{"thread": …, "entries": […]}]}; images are in base64
    jsonl     one entry a line, each with its thread_id
    markdown  a conversation to read; images are named, not shown

    A file is complete or not there: it is put in its place when all of it is written.
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    with reach_agent(selection, working=False) as agent:
        found = find_thread(agent.api, thread, agent.said)
        threads = list(_family(agent.api, found)) if family else [found]
        with _writing(output) as write, _progress(output) as counted:
            journals = ((each, counted(read_journal(agent.api, each["thread_id"]))) for each in threads)
            for part in _FORMATS[format_](journals):
                write(part)
    if output is not None:
        click.echo(f"{len(threads)} thread{'s' * (len(threads) != 1)} written to {output}.")


def _family(api: AgentApi, thread: Any) -> Iterator[Any]:
    """A thread, then its children with theirs, the oldest first."""
    yield thread
    children = [each["thread_id"] for each in all_threads(api, parent=thread["thread_id"])]
    for child in reversed(children):
        yield from _family(api, api.get(path_of(child)))


def _as_json(journals: Journals) -> Iterator[str]:
    yield '{"threads": ['
    for count, (thread, entries) in enumerate(journals):
        yield f'{"," if count else ""}\n{{"thread": {as_json(thread, indent=None)},\n"entries": ['
        for number, entry in enumerate(entries):
            yield f"{',' if number else ''}\n{as_json(entry, indent=None)}"
        yield "\n]}"
    yield "\n]}\n"


def _as_jsonl(journals: Journals) -> Iterator[str]:
    for thread, entries in journals:
        for entry in entries:
            yield f"{as_json({'thread_id': thread['thread_id'], **entry}, indent=None)}\n"


def _as_markdown(journals: Journals) -> Iterator[str]:
    for thread, entries in journals:
        yield from map(printable, in_markdown(thread, entries))


_FORMATS: dict[str, Callable[[Journals], Iterator[str]]] = {
    "json": _as_json,
    "jsonl": _as_jsonl,
    "markdown": _as_markdown,
}


@contextlib.contextmanager
def _writing(output: str | None) -> Iterator[Write]:
    if output is None:
        yield lambda text: click.echo(text, nl=False)
        return
    path = Path(output)
    try:
        handle, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        raise _not_written(output, error) from None
    try:
        # What is no text, half of a surrogate pair, is escaped as JSON does it.
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:

            def write(text: str) -> None:
                try:
                    file.write(text)
                except OSError as error:
                    raise _not_written(output, error) from None

            yield write
        os.chmod(temporary, _mode_of(path))
        os.replace(temporary, path)
    except OSError as error:
        raise _not_written(output, error) from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _mode_of(path: Path) -> int:
    """Whom a file is for: what it was, or what new files are; a temporary one is only ours."""
    with contextlib.suppress(OSError):
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask


def _not_written(output: str, error: OSError) -> ConfigError:
    return ConfigError(f"{output} cannot be written: {error.strerror or error}.")


@contextlib.contextmanager
def _progress(output: str | None) -> Iterator[Callable[[Iterator[Any]], Iterator[Any]]]:
    """Counts entries on a terminal, unless they are shown there themselves."""
    if not sys.stderr.isatty() or (output is None and sys.stdout.isatty()):
        yield lambda entries: entries
        return
    count = 0

    def counted(entries: Iterator[Any]) -> Iterator[Any]:
        nonlocal count
        for entry in entries:
            count += 1
            if count % 100 == 0:
                click.echo(f"\r{count} entries", nl=False, err=True)
            yield entry

    yield counted
    click.echo(f"\r{count} entries", err=True)
