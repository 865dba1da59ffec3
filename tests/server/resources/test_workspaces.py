"""The folders of threads: nobody gets out of one, and what is deleted is deleted completely and alone."""

import contextlib
import os
import shutil
import stat
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rapkit.server.invocation import thread_key
from rapkit.server.resources.workspaces import Workspaces, delete, workspaces_for

HOSTILE = [
    "../../etc",
    "..",
    ".",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "~",
    "$HOME",
    "-rf",
    "CON",
    "t_" + "A" * 24,
    "gone_t_" + "A" * 24 + "_00000000",
    "x" * 100_000,
    "\u202eevil",
    "ﬁ",
    "fi",
    "é",
    "e\u0301",
    "😀",
    " ",
    "A",
    "a",
    "%2e%2e%2f",
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "x.db.workspaces"


@pytest.fixture
def workspaces(root: Path) -> Workspaces:
    return Workspaces(root)


def key(thread_id: str = "t1", caller: str = "alice", toolset: str = "tools") -> str:
    return thread_key(toolset, caller, thread_id)


def test_no_thread_id_leads_out_of_the_root(workspaces: Workspaces, root: Path) -> None:
    """CLO-7: each has a folder of its own, directly in the root, whatever is in its name."""
    folders = [workspaces.folder(key(thread_id)) for thread_id in HOSTILE]

    assert {folder.resolve().parent for folder in folders} == {root.resolve()}
    assert len({folder.name.lower() for folder in folders}) == len(HOSTILE)
    assert sorted(root.iterdir()) == sorted(folders)


@pytest.mark.parametrize("name", ["..", "../x", "", "t_short", "/etc", "t_" + "/" * 24, "t_" + "A" * 24 + "\n"])
def test_what_is_no_key_is_never_made_a_path(workspaces: Workspaces, name: str) -> None:
    """CLO-7: not even if somebody forgets to hash."""
    for operation in (workspaces.folder, workspaces.existing, workspaces.discard):
        with pytest.raises(ValueError, match="not the key of a thread"):
            operation(name)


def test_callers_and_toolsets_have_folders_of_their_own(workspaces: Workspaces) -> None:
    """Semantics: who may touch what."""
    folders = {
        workspaces.folder(key("t1", caller, toolset)) for caller in ("alice", "bob") for toolset in ("tools", "others")
    }

    assert len(folders) == 4


def test_a_folder_is_for_its_owner_alone_and_stays_the_same(workspaces: Workspaces, root: Path) -> None:
    folder = workspaces.folder(key())
    (folder / "note.txt").write_text("kept")

    assert workspaces.folder(key()) == workspaces.existing(key()) == folder
    assert (folder / "note.txt").read_text() == "kept"
    assert folder.is_absolute()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


def test_the_root_stays_where_it_was_if_the_working_directory_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    workspaces = Workspaces(Path("here"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert workspaces.folder(key()).parent == (tmp_path / "here").resolve()


def test_a_root_that_was_deleted_is_made_again(workspaces: Workspaces, root: Path) -> None:
    workspaces.folder(key())
    shutil.rmtree(root)

    assert workspaces.folder(key()).is_dir()


@pytest.mark.parametrize("target", ["outside", "nowhere"])
def test_a_link_planted_in_place_of_a_folder_is_refused(
    workspaces: Workspaces, root: Path, tmp_path: Path, target: str
) -> None:
    """CLO-7"""
    (tmp_path / "outside").mkdir()
    workspaces.folder(key("other"))
    (root / key()).symlink_to(tmp_path / target)

    with pytest.raises(NotADirectoryError, match="is a link or a file"):
        workspaces.folder(key())

    assert workspaces.existing(key()) is None
    gone = workspaces.discard(key())
    assert gone is not None
    delete(gone)
    assert (tmp_path / "outside").is_dir()
    assert not (tmp_path / "nowhere").exists()
    assert workspaces.folder(key()).is_dir()


def test_a_link_planted_in_place_of_the_root_is_refused(workspaces: Workspaces, root: Path, tmp_path: Path) -> None:
    """CLO-7"""
    workspaces.folder(key())
    root.rename(tmp_path / "moved")
    root.symlink_to(tmp_path / "moved")

    for thread_id in ("t1", "t2"):
        with pytest.raises(NotADirectoryError, match="leads out of"):
            workspaces.folder(key(thread_id))


def test_many_threads_may_ask_at_once(root: Path) -> None:
    for workspaces in (Workspaces(root), Workspaces(None)):
        together = threading.Barrier(8)
        found: list[Path] = []

        def ask(workspaces: Workspaces = workspaces, together: threading.Barrier = together) -> None:
            together.wait()
            found.append(workspaces.folder(key()))  # noqa: B023 - all are joined below

        threads = [threading.Thread(target=ask) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert len(found) == 8
        assert len(set(found)) == 1
        workspaces.close()


def test_what_is_discarded_is_out_of_the_way_at_once(workspaces: Workspaces) -> None:
    folder = workspaces.folder(key())
    (folder / "old.txt").touch()

    gone = workspaces.discard(key())

    assert gone is not None
    assert workspaces.existing(key()) is None
    assert list(workspaces.folder(key()).iterdir()) == []
    assert workspaces.discarded() == [gone]
    delete(gone)
    assert workspaces.discarded() == []
    assert workspaces.existing(key()) == folder


def test_discarding_what_is_not_there_is_harmless(workspaces: Workspaces) -> None:
    """CLO-5: repeats are."""
    assert workspaces.discard(key()) is None
    workspaces.folder(key())
    assert workspaces.discard(key()) is not None
    assert workspaces.discard(key()) is None
    assert Workspaces(None).discard(key()) is None


def test_links_in_a_folder_are_deleted_and_not_followed(workspaces: Workspaces, tmp_path: Path) -> None:
    """CLO-7"""
    outside = tmp_path / "outside"
    (outside / "deep").mkdir(parents=True)
    (outside / "deep" / "precious.txt").write_text("precious")
    folder = workspaces.folder(key())
    (folder / "sub").mkdir()
    (folder / "link").symlink_to(outside)
    (folder / "sub" / "link").symlink_to(outside / "deep")
    (folder / "sub" / "file").symlink_to(outside / "deep" / "precious.txt")
    (folder / "loop").symlink_to(folder)

    gone = workspaces.discard(key())
    assert gone is not None
    delete(gone)

    assert not os.path.lexists(gone)
    assert (outside / "deep" / "precious.txt").read_text() == "precious"


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    """Root may do anything, so that a test of permissions shows nothing."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_read_only_folders_and_files_are_deleted_too() -> None:
    with as_nobody(), tempfile.TemporaryDirectory() as place:
        outside = Path(place, "outside")
        outside.mkdir(mode=0o500)
        workspaces = Workspaces(Path(place, "root"))
        folder = workspaces.folder(key())
        for name in ("a", "b/c", "locked/deeper"):
            (folder / name).mkdir(parents=True)
            (folder / name / "file").touch(mode=0o400)
        (folder / "locked" / "link").symlink_to(outside)
        for name in ("b/c", "b", "locked/deeper", "locked", "."):
            (folder / name).chmod(0o000 if name.startswith("locked") else 0o500)

        gone = workspaces.discard(key())
        assert gone is not None
        delete(gone)

        assert not gone.exists()
        assert stat.S_IMODE(outside.stat().st_mode) == 0o500  # what a link leads to is not unlocked either


def test_what_cannot_be_deleted_is_said() -> None:
    with as_nobody(), tempfile.TemporaryDirectory() as place:
        workspaces = Workspaces(Path(place, "root"))
        workspaces.folder(key())
        gone = workspaces.discard(key())
        assert gone is not None
        gone.parent.chmod(0o500)
        try:
            with pytest.raises(PermissionError):
                delete(gone)
        finally:
            gone.parent.chmod(0o700)


def test_a_folder_nested_too_deep_is_said_and_kills_nobody() -> None:
    place = Path(tempfile.mkdtemp())  # not among those that pytest deletes: it cannot either
    try:
        workspaces = Workspaces(place / "root")
        here = os.open(workspaces.folder(key()), os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("d", dir_fd=here)
            deeper = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        os.close(here)
        gone = workspaces.discard(key())
        assert gone is not None

        with contextlib.suppress(OSError):  # newer Pythons can
            delete(gone)

        assert workspaces.discarded() in ([gone], [])
    finally:
        subprocess.run(["rm", "-rf", place], check=True)


def test_only_what_is_ours_and_old_counts_as_untouched(workspaces: Workspaces, root: Path) -> None:
    old, new = workspaces.folder(key("old")), workspaces.folder(key("new"))
    asked_for_again = workspaces.folder(key("again"))
    for name in ("notes", "t_short", "gone_away", f"{old.name}.bak"):
        (root / name).mkdir()
    for folder in root.iterdir():
        if folder != new:
            os.utime(folder, (1000, 1000))
    workspaces.folder(asked_for_again.name)

    assert workspaces.untouched_since(2000) == [old.name]
    assert workspaces.discarded() == []


def test_a_root_nobody_has_used_is_empty(workspaces: Workspaces, root: Path) -> None:
    assert workspaces.untouched_since(float("inf")) == []
    assert workspaces.discarded() == []
    assert workspaces.existing(key()) is None
    assert not root.exists()


def test_a_temporary_root_is_made_when_needed_and_deleted_at_the_end() -> None:
    workspaces = Workspaces(None)
    workspaces.close()
    folder = workspaces.folder(key())
    (folder / "file").touch()
    assert folder.is_dir()

    workspaces.close()

    assert not folder.parent.exists()


def test_a_temporary_root_is_deleted_even_if_nobody_closes() -> None:
    workspaces = Workspaces(None)
    folder = workspaces.folder(key())

    del workspaces

    assert not folder.parent.exists()


def test_workspaces_are_beside_the_store() -> None:
    assert workspaces_for("sqlite:///.rapkit/weather.db") == Path(".rapkit/weather.db.workspaces")
    assert workspaces_for("sqlite:////var/lib/weather") == Path("/var/lib/weather.workspaces")
    assert workspaces_for("sqlite:///:memory:") is None
