"""Report which tools an agent found at its servers, as text or JSON."""

import logging
from collections.abc import Iterator, Sequence

from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from rapkit.kernel.catalog import offered_name
from rapkit.printable import printable
from rapkit.runtime.toolsets import ToolsetFinding

_NARROWEST = 24
_NOTHING = "-"


class ToolNames:
    """Names of tools in one line: as many as there is room for, and how many more there are."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        """Clip to the width there is."""
        yield Text(self.clipped(options.max_width), no_wrap=True, overflow="ellipsis")

    def __rich_measure__(self, _console: Console, _options: ConsoleOptions) -> Measurement:
        """All of them are wanted, few are enough."""
        widest = len(", ".join(self._names))
        return Measurement(min(widest, _NARROWEST), widest)

    def clipped(self, width: int) -> str:
        """The names, in `width` characters at most if the first has room there."""
        for count in range(len(self._names), 0, -1):
            more = len(self._names) - count
            text = ", ".join(self._names[:count]) + (f" and {more} more" if more else "")
            if len(text) <= width:
                return text
        return f"{len(self._names)} tools" if len(self._names) > 1 else self._names[0]


def show_findings(console: Console, findings: Sequence[ToolsetFinding], unknown: Sequence[str] = ()) -> None:
    """A table of the servers, then what is wrong with what they offer; `unknown` says which tools are named that they do not."""
    if findings:
        _show_servers(console, findings)
    else:
        console.print("No tool servers are configured: the model has only its built-in tools.")
    notes = Table.grid(padding=(0, 2, 0, 0))
    for finding in findings:
        if finding.problem is not None:
            notes.add_row(Text("problem", "red"), Text(printable(_full_problem(finding))))
    for reason in _reasons(findings):
        notes.add_row(Text("withheld", "yellow"), Text(printable(reason)))
    for line in _ignored(findings):
        notes.add_row(Text("ignored", "yellow"), Text(printable(line)))
    for sentence in unknown:
        notes.add_row(Text("unknown", "yellow"), Text(printable(sentence)))
    if notes.rows:
        console.print(notes)
        console.print()


def _show_servers(console: Console, findings: Sequence[ToolsetFinding]) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("server", overflow="fold")
    table.add_column("toolset", overflow="fold", max_width=24)
    table.add_column("version", overflow="ellipsis", no_wrap=True, max_width=16)
    table.add_column("tools", overflow="fold")
    for finding in findings:
        table.add_row(*_row(finding))
    console.print(table)
    console.print()


def log_findings(log: logging.Logger, findings: Sequence[ToolsetFinding], unknown: Sequence[str] = ()) -> None:
    """The same as log lines."""
    for finding in findings:
        document = finding.document
        if document is None:
            about = {"server": finding.server.key, "problem": finding.problem}
            log.warning("server offers nothing", extra=about)
            continue
        found = {"server": finding.server.key, "toolset": document.name, "version": document.version}
        withheld = [each.name for each in finding.withheld]
        log.info("server found", extra={**found, "tools": _names(finding), "withheld": withheld})
    for reason in _reasons(findings):
        log.warning("tool withheld", extra={"problem": reason})
    for line in _ignored(findings):
        log.warning("toolset field ignored", extra={"problem": line})
    for sentence in unknown:
        log.warning("tool unknown", extra={"problem": sentence})


def _row(finding: ToolsetFinding) -> Iterator[Text | ToolNames]:
    yield Text(printable(finding.server.key))
    if finding.document is None:
        yield Text(_NOTHING, "dim")
        yield Text(_NOTHING, "dim")
        yield Text("nothing, see below", "red")
        return
    yield Text(printable(finding.document.name))
    yield Text(printable(finding.document.version or _NOTHING))
    names = _names(finding)
    yield ToolNames(names) if names else Text("none: all are withheld", "yellow")


def _names(finding: ToolsetFinding) -> list[str]:
    """The tools as the model is offered them."""
    if finding.document is None:
        return []
    withheld = {each.name for each in finding.withheld}
    names = (offered_name(finding.server.prefix, tool.name) for tool in finding.document.tools)
    return [name for name in names if name not in withheld]


def _full_problem(finding: ToolsetFinding) -> str:
    """What is wrong, and with which server; some texts say the latter themselves."""
    problem = finding.problem or ""
    return problem if finding.server.origin in problem else f"{finding.server.base}: {problem}"


def _reasons(findings: Sequence[ToolsetFinding]) -> list[str]:
    """Why tools are withheld; each once, though several servers have to do with it."""
    return list(dict.fromkeys(each.reason for finding in findings for each in finding.withheld))


def _ignored(findings: Sequence[ToolsetFinding]) -> list[str]:
    """Fields of toolsets that cannot be used, each with its server."""
    return [f"{finding.server.base}: {line}" for finding in findings for line in finding.ignored]
