"""Report the results of the checks, as text or JSON."""

import contextlib
import json
from collections.abc import Callable, Collection, Iterator, Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from rapkit.cli.doctor.check_result import CheckResult, State
from rapkit.printable import printable

_STYLES: dict[State, str] = {"ok": "green", "warning": "yellow", "failed": "bold red", "skipped": "dim"}
_WIDEST_STATE = max(map(len, _STYLES))
_NARROW = 60
_ARROW = "→"


def as_json(results: Sequence[CheckResult]) -> str:
    """One object: whether all is well, and all checks."""
    checks = [{"check": each.check, "state": each.state, "seen": each.seen, "do": each.do} for each in results]
    return json.dumps({"ok": all_passed(results), "checks": checks}, indent=2)


def all_passed(results: Sequence[CheckResult]) -> bool:
    """Whether nothing failed."""
    return not any(each.state == "failed" for each in results)


def show(results: Sequence[CheckResult], console: Console) -> None:
    """A line for each, wrapped on a terminal; then what it all comes to."""
    if not console.is_terminal:
        for each in results:
            remedy = f" {_ARROW} {each.do}" if each.do else ""
            console.print(
                Text(_one_line(f"{each.state:<{_WIDEST_STATE}}  {each.check}: {each.seen}{remedy}")), soft_wrap=True
            )
    elif console.width < _NARROW:
        for each in results:
            console.print(Text.assemble(_state(each), "  ", (each.check, "bold")))
            console.print(Padding(_told(each), (0, 0, 0, 2)))
    else:
        table = Table.grid(padding=(0, 2, 0, 0))
        for each in results:
            table.add_row(_state(each), Text(each.check, "bold", no_wrap=True), _told(each))
        console.print(table)
    console.print(Text(f"\n{summary(results)}"), soft_wrap=not console.is_terminal)


def summary(results: Sequence[CheckResult]) -> str:
    """The whole in one sentence."""
    failed = sum(each.state == "failed" for each in results)
    warnings = sum(each.state == "warning" for each in results)
    if not failed and not warnings:
        return "All is well."
    parts = [f"{failed} failed"] * bool(failed) + [f"{warnings} warning{'s' * (warnings != 1)}"] * bool(warnings)
    return f"{' and '.join(parts)}. After {_ARROW} stands what to do."


@contextlib.contextmanager
def waiting(console: Console) -> Iterator[Callable[[Collection[str]], None]]:
    """Shows which checks are under way, on a terminal."""
    if not console.is_terminal:
        yield lambda _: None
        return
    with console.status("checking", spinner="line") as status:
        yield lambda names: status.update(f"checking: {', '.join(names)}")


def _state(result: CheckResult) -> Text:
    return Text(result.state, _STYLES[result.state], no_wrap=True)


def _told(result: CheckResult) -> Text:
    text = Text(printable(result.seen), overflow="fold")
    if result.do:
        text.append(f"\n{_ARROW} {printable(result.do)}", "cyan")
    return text


def _one_line(text: str) -> str:
    return " ".join(printable(text).split("\n"))
