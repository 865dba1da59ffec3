"""Check that stores can be opened and written, and how much work is pending in them."""

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rapkit.cli.doctor.check_result import CheckResult, State
from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.cli.doctor.store_file import Contents, NotOurs, StoreFile, Unreadable
from rapkit.cli.duration_text import format_duration
from rapkit.errors import ConfigError
from rapkit.keyring import VARIABLE, Keyring, key_file, read_key_file
from rapkit.store_url import file_in, file_of, is_in_memory, shown

_CHECK = "store"
_FOLDER = Path(".rapkit")  # where `rapkit serve` keeps its stores by default
_LITTLE = 1024**3
_TOO_LITTLE = 50 * 1024**2
_CHECKED_FOR = 8.0
_LONG = 300.0
_OTHERS = 0o077


@dataclass(frozen=True, slots=True)
class StoreProblem:
    """Something wrong with a store, and what to do, unless another trouble says it; `fatal` if it cannot be used."""

    seen: str
    do: str
    fatal: bool = False


def check(checked: CheckedAgent) -> list[CheckResult]:
    """The agent's store, and those of tool servers that were started here."""
    settings = checked.settings
    agents = None if settings is None else file_of(settings.store)
    results = [] if settings is None else [_of_agent(settings.store, agents)]
    others = [path for path in sorted((checked.folder / _FOLDER).glob("*.db")) if not _same(path, agents)]
    results += [_of_file(path) for path in others]
    return results or [CheckResult(_CHECK, "skipped", f"without settings none is known, and none is in {_FOLDER}")]


def _same(path: Path, other: Path | None) -> bool:
    return other is not None and path.resolve() == other.resolve()


def _of_agent(url: str, path: Path | None) -> CheckResult:
    if path is not None:
        return _of_file(path)
    if is_in_memory(url):
        lost = "threads are kept in memory, and lost when the agent ends"
        return CheckResult(_CHECK, "warning", lost, 'Set store = "sqlite:///.rapkit/agent.db" to keep them.')
    return CheckResult(
        _CHECK, "failed", f"{shown(url)!r} is no store", "Use sqlite:///file.db, or sqlite:////absolute/file.db."
    )


def _of_file(path: Path) -> CheckResult:
    if not path.exists():
        return _not_there(path)
    if path.is_dir():
        return CheckResult(
            _CHECK, "failed", f"{path} is no store but a folder", f"Name a file in it, like {file_in(path)}."
        )
    space = _trouble_with_space(path)
    if not path.stat().st_size:  # a disk that was full when it was made leaves it so
        return _result(f"{path}: empty yet, and filled at the first start", [*_trouble_with_access(path), *space])
    troubles: list[StoreProblem] = [*_trouble_with_access(path), *space]
    told = ""
    try:
        keys = _keys(path, troubles)
        with StoreFile(path) as store:
            troubles += _trouble_within(store, keys, path)
            contents = store.contents()
            troubles += _trouble_with(contents, path)
            told = f": {_summary(contents)}"
    except NotOurs as error:  # so neither its key nor its disk matters
        return CheckResult(_CHECK, "failed", f"{path}: {error}", "Name another file.")
    except Unreadable as error:
        full = any(each.fatal for each in space)  # which may be why, and comes first in any case
        troubles.append(StoreProblem(str(error), "" if full else error.do, fatal=True))
    return _result(f"{path}{told}", troubles)


def _result(about: str, troubles: list[StoreProblem]) -> CheckResult:
    if not troubles:
        return CheckResult(_CHECK, "ok", about)
    state: State = "failed" if any(each.fatal for each in troubles) else "warning"
    do = " ".join(dict.fromkeys(each.do for each in troubles if each.do))
    return CheckResult(_CHECK, state, f"{about}; {'; '.join(each.seen for each in troubles)}", do)


def _not_there(path: Path) -> CheckResult:
    folder = next(each for each in path.absolute().parents if each.exists())
    if not os.access(folder, os.W_OK | os.X_OK):
        return CheckResult(
            _CHECK, "failed", f"{path} cannot be made: {folder} cannot be written", "Check the folder's owner."
        )
    return _result(f"{path}: not there yet, and made at the first start", list(_trouble_with_space(folder)))


def _trouble_with_access(path: Path) -> list[StoreProblem]:
    if not os.access(path, os.R_OK | os.W_OK) or not os.access(path.parent, os.W_OK | os.X_OK):
        return [StoreProblem("it cannot be written", "Check who owns the file and its folder.", fatal=True)]
    return []


def _trouble_with_space(path: Path) -> list[StoreProblem]:
    free = shutil.disk_usage(path).free
    if free >= _LITTLE:
        return []
    return [StoreProblem(f"only {free // 1024**2} MB are free on its disk", "Make room.", fatal=free < _TOO_LITTLE)]


def _keys(path: Path, troubles: list[StoreProblem]) -> Keyring | None:
    """The keys it would be opened with, if they are at hand."""
    file = key_file(path)
    text = os.environ.get(VARIABLE)
    try:
        if text is not None:
            return Keyring.parse(text)
        found = file.stat()
        if found.st_mode & _OTHERS:
            troubles.append(StoreProblem(f"others may read its key, {file}", f"Run: chmod 600 {file}"))
        if found.st_uid != os.geteuid():
            troubles.append(StoreProblem(f"its key, {file}, is somebody else's", f"Run as its owner, or chown {file}."))
        return read_key_file(file)
    except FileNotFoundError:
        lost = f"its key is missing: there is no file {file}, and {VARIABLE} is not set"
        troubles.append(StoreProblem(lost, f"Restore {file} from a backup, or set {VARIABLE} to the key.", fatal=True))
    except OSError as error:
        troubles.append(StoreProblem(f"its key cannot be read: {error}", f"Check {file}.", fatal=True))
    except ConfigError as error:
        correct = f"Correct {file if text is None else VARIABLE}."
        troubles.append(StoreProblem(f"its key cannot be used: {error}", correct, fatal=True))
    return None


def _trouble_within(store: StoreFile, keys: Keyring | None, path: Path) -> list[StoreProblem]:
    if keys is not None and not store.opens_with(keys):
        remedy = f"Put the old key behind the new one: {VARIABLE}=new,old."
        if VARIABLE not in os.environ:
            remedy = f"Restore {key_file(path)} from a backup, or set {VARIABLE} to the key it was sealed with."
        return [StoreProblem("it was sealed with another key", remedy, fatal=True)]
    sound = store.is_sound(_CHECKED_FOR)
    if sound is False:
        return [StoreProblem("it is damaged", "Restore it from a copy.", fatal=True)]
    return []


def _trouble_with(contents: Contents, path: Path) -> list[StoreProblem]:
    troubles = []
    if contents.dead:
        given_up = f"{contents.dead} message{'s' * (contents.dead != 1)} could not be delivered"
        troubles.append(StoreProblem(given_up, f"See: rapkit outbox list --store sqlite:///{path}"))
    if contents.threads.get("parked"):
        troubles.append(StoreProblem("parked threads wait for somebody", "See why: rapkit threads list"))
    if contents.unsigned:
        calls = f"callbacks of {contents.unsigned} call{'s' * (contents.unsigned != 1)} were refused (401), because they are not signed"
        advice = "Give the server and its webhook_secret the same secret, or leave webhook_secret out; see callback_problem of the calls."
        troubles.append(StoreProblem(calls, advice))
    if contents.unread and contents.oldest_unread > _LONG and not contents.workers:
        waits = f"mail has waited for {format_duration(contents.oldest_unread)}, and nobody works on it"
        troubles.append(StoreProblem(waits, "Start what uses this store: rapkit up, rapkit wake or rapkit serve."))
    return troubles


def _summary(contents: Contents) -> str:
    threads = [f"{count} {status}" for status in ("waiting", "parked") if (count := contents.threads.get(status))]
    parts = [f"threads {', '.join(threads)}"] if threads else []
    parts += [f"{contents.unread} unread"] if contents.unread else []
    processes = f"{contents.workers} process{'es' * (contents.workers != 1)} at work"
    return ", ".join([*parts, processes if contents.workers else "nobody at work"])
