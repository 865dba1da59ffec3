"""Run all checks concurrently, each within a time limit."""

import queue
import threading
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from rapkit.cli.doctor import clock, config, model, open_files, reachable, servers, stores, versions
from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent

Check = Callable[[CheckedAgent], list[CheckResult]]

CHECKS: Mapping[str, Check] = {
    "versions": versions.check,
    "config": config.check,
    "store": stores.check,
    "model": model.check,
    "server": servers.check,
    "public_url": reachable.check,
    "clock": clock.check,
    "open files": open_files.check,
}
"""What is checked, in the order in which it is told."""

PATIENCE = 30.0
_TICK = 0.1


@dataclass(frozen=True, slots=True)
class _Done:
    name: str
    results: list[CheckResult]


def run_checks(
    checked: CheckedAgent,
    on_wait: Callable[[Collection[str]], None],
    checks: Mapping[str, Check] = CHECKS,
    patience: float = PATIENCE,
) -> list[CheckResult]:
    """What all checks come to. `on_wait` is told, from time to time, which are still under way."""
    done: queue.SimpleQueue[_Done] = queue.SimpleQueue()
    for name, check in checks.items():
        # Daemon threads: one that hangs holds up neither the others nor Ctrl-C.
        threading.Thread(target=_make, args=(name, check, checked, done.put), daemon=True, name=name).start()
    ends_at = time.monotonic() + patience
    found: dict[str, list[CheckResult]] = {}
    while len(found) < len(checks) and time.monotonic() < ends_at:
        on_wait([name for name in checks if name not in found])
        try:
            each = done.get(timeout=_TICK)
        except queue.Empty:
            continue
        found[each.name] = each.results
    late = f"it did not end within {patience:g} s"
    return [
        result
        for name in checks
        for result in found.get(name, [CheckResult(name, "failed", late, "Try again; something hangs.")])
    ]


def _make(name: str, check: Check, checked: CheckedAgent, put: Callable[[_Done], None]) -> None:
    try:
        results = check(checked)
    except Exception as error:  # noqa: BLE001 - one check that breaks must not take the others with it
        broken = f"the check itself broke: {type(error).__name__}"
        results = [CheckResult(name, "skipped", broken, "Please report it as a bug of rapkit.")]
    put(_Done(name, results))
