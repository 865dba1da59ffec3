"""Toolsets that a thread has to do without, because discovery of their servers failed (DIS-12)."""

from rapkit.kernel.catalog import Catalog
from rapkit.kernel.effects import Step
from rapkit.kernel.entries import ToolsetFound, ToolsetMissing
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.step_builder import StepBuilder
from rapkit.kernel.thread import Thread


def note_toolsets(thread: Thread, catalog: Catalog, now: float, limits: ThreadLimits) -> Step | None:
    """Journal which toolsets are missing now and were not before, and which were found since; None if nothing has changed.

    A server is journaled once while it is missing, however often it was asked: its first reason stands.
    """
    missing = thread.missing_toolsets
    lost = {server: reason for server, reason in catalog.missing.items() if server not in missing}
    over = [server for server in missing if server not in catalog.missing]
    if not lost and not over:
        return None
    draft = StepBuilder(thread, now, limits)
    offered = {each.server for each in catalog.loaded}
    found = [server for server in over if server in offered]  # any other was taken out of the configuration
    for server, reason in lost.items():
        draft.journal(ToolsetMissing(server, reason))
    for server in found:
        draft.journal(ToolsetFound(server))
    still = {server: reason for server, reason in missing.items() if server not in over}
    known = [server for server in thread.found_toolsets if server not in lost]
    draft.change(missing_toolsets={**still, **lost}, found_toolsets=tuple(dict.fromkeys([*known, *found])))
    return draft.step()
