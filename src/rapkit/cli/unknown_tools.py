"""Detect tool names in an agent's settings that no server offers. A typo there disables a confirmation or a timeout."""

import difflib
from collections.abc import Mapping, Sequence

from rapkit.kernel.catalog import offered_name
from rapkit.kernel.limits import ThreadLimits
from rapkit.runtime.toolsets import ToolsetFinding


def unknown_tools(limits: ThreadLimits, findings: Sequence[ToolsetFinding]) -> list[str]:
    """A sentence or two for each of them. It need not be a mistake: a server may be down."""
    named: Mapping[str, Mapping[str, object]] = {
        "[agent.confirm.tools]": limits.confirmations.tools,
        "[agent.call_timeouts]": limits.timeouts.tools,
    }
    known = _known(findings)
    silent = [finding.server.key for finding in findings if finding.document is None]
    return [
        f"{where} names {name!r}, and no server offers a tool that the model calls so.{_meant(name, known)}{_perhaps(silent)}"
        for where, tools in named.items()
        for name in tools
        if name not in known
    ]


def _known(findings: Sequence[ToolsetFinding]) -> list[str]:
    """What the model calls the tools there are, those too that are withheld from it."""
    return [
        offered_name(finding.server.prefix, tool.name)
        for finding in findings
        if finding.document is not None
        for tool in finding.document.tools
    ]


def _meant(name: str, known: Sequence[str]) -> str:
    # What was left out is most likely the prefix.
    close = [each for each in known if each.endswith(name)] or difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {close[0]!r}?" if close else ""


def _perhaps(silent: Sequence[str]) -> str:
    if not silent:
        return ""
    servers = ", ".join(silent)
    return f" It may be one of {servers}, where nothing was found: then it applies as soon as something is."
