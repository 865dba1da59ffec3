"""Check the clock, on which timers, schedules, leases and signatures depend."""

import time
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from zoneinfo import ZoneInfo

from rapkit.cli.daemon_thread import run_in_daemon_thread
from rapkit.cli.doctor.check_result import CheckResult
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.cli.doctor.fetch import fetch
from rapkit.cli.doctor.store_file import StoreFile
from rapkit.cli.duration_text import format_duration
from rapkit.errors import DeliveryError, RapkitError
from rapkit.printable import printable
from rapkit.runtime.discovery import PATH
from rapkit.stores import file_of

_CHECK = "clock"
_BEGAN = 1_767_225_600  # 2026, before which nothing of this was written
_FAR_OFF = 60.0
_STEP = 1.0
_MOMENT = 0.1
_SET_IT = "Set the clock of this machine, and keep it right (NTP)."


def check(checked: CheckedAgent) -> list[CheckResult]:
    """Compare it with itself, with what servers say, and with what stands in the store."""
    seen = f"{time.strftime('%Y-%m-%d %H:%M:%S', time.gmtime())} UTC"
    wrong = _wrong_by_itself() or next(_wrong_beside_others(checked), None)
    if wrong is not None:
        return [CheckResult(_CHECK, "failed", f"{seen}: {wrong}", _SET_IT)]
    try:
        ZoneInfo("Europe/Berlin")
    except (LookupError, OSError):
        return [
            CheckResult(
                _CHECK,
                "warning",
                f"{seen}; no time zones but UTC are known here, for schedules",
                "Run: pip install tzdata",
            )
        ]
    return [CheckResult(_CHECK, "ok", seen)]


def _wrong_by_itself() -> str | None:
    if time.time() < _BEGAN:
        return "that is long ago"
    before = time.time() - time.monotonic()
    time.sleep(_MOMENT)
    step = time.time() - time.monotonic() - before
    return f"it was set by {step:+.0f} s just now" if abs(step) > _STEP else None


def _wrong_beside_others(checked: CheckedAgent) -> Iterator[str]:
    if checked.settings is None:
        return
    latest = _latest(checked.settings.store)
    if latest is not None and latest - time.time() > _FAR_OFF:
        yield f"the store has something from {format_duration(latest - time.time())} later"
    servers = checked.settings.servers
    asked = [run_in_daemon_thread(_off, server.base + PATH) for server in servers]
    for server, answer in zip(servers, asked, strict=True):
        off = answer.result()
        if off is not None and abs(off) > _FAR_OFF:
            where = "ahead of" if off > 0 else "behind"
            yield f"it is {format_duration(abs(off))} {where} that of {printable(server.key)}"


def _latest(store: str) -> float | None:
    file = file_of(store)
    if file is None or not file.is_file():
        return None
    try:
        with StoreFile(file) as opened:
            return opened.latest()
    except RapkitError:
        return None  # which is another check's to say


def _off(url: str) -> float | None:
    """How many seconds our clock is ahead of a server's, if that says what time it is."""
    try:
        date = fetch(url).date
    except DeliveryError:
        return None
    try:
        return None if date is None else time.time() - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None
