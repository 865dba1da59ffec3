"""Sealing, rotation, and where keys come from."""

import base64
import errno
import os
import secrets
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapkit.errors import ConfigError, WrongKey
from rapkit.keyring import VARIABLE, Keyring, load_keyring

OLD, NEW = b"o" * 32, b"n" * 32


@pytest.fixture(autouse=True)
def no_key_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


RING = Keyring(NEW)


@given(st.binary(max_size=2000))
def test_what_is_sealed_opens_again(plain: bytes) -> None:
    sealed = RING.seal(plain)

    assert RING.open(sealed) == plain
    assert len(plain) < 8 or plain not in sealed


def test_the_same_twice_does_not_look_the_same() -> None:
    assert RING.seal(b"same") != RING.seal(b"same")


def test_an_old_key_behind_a_new_one_still_opens() -> None:
    sealed_before = Keyring(OLD).seal(b"kept")
    rotated = Keyring(NEW, OLD)

    assert rotated.open(sealed_before) == b"kept"
    assert Keyring(NEW).open(rotated.seal(b"fresh")) == b"fresh"


def test_without_the_old_key_one_is_told_what_to_do() -> None:
    with pytest.raises(WrongKey, match=f"put the old one behind the new one in {VARIABLE}"):
        Keyring(NEW).open(Keyring(OLD).seal(b"lost"))


@given(st.data())
def test_nothing_that_was_changed_opens(data: st.DataObject) -> None:
    sealed = bytearray(RING.seal(b"important"))
    place = data.draw(st.integers(0, len(sealed) - 1))
    sealed[place] ^= data.draw(st.integers(1, 255))

    with pytest.raises(WrongKey):
        RING.open(bytes(sealed))


@given(st.binary(max_size=60))
def test_nothing_that_was_never_sealed_opens(blob: bytes) -> None:
    with pytest.raises(WrongKey):
        RING.open(blob)


def test_nothing_that_was_cut_short_opens() -> None:
    sealed = RING.seal(b"important")
    for length in range(len(sealed)):
        with pytest.raises(WrongKey):
            RING.open(sealed[:length])


def test_each_purpose_has_keys_of_its_own_newest_first() -> None:
    ring = Keyring(NEW, OLD)

    assert ring.derive("tokens") == [*Keyring(NEW).derive("tokens"), *Keyring(OLD).derive("tokens")]
    assert len({*ring.derive("tokens"), *ring.derive("cookies"), NEW, OLD}) == 6
    assert all(len(key) == 32 for key in ring.derive("tokens"))


@pytest.mark.parametrize(
    "form",
    [
        lambda old, new: f"{new},{old}",
        lambda old, new: f" {new} , {old} \n",
        lambda old, new: f"{new}\n{old}\n",
        lambda old, new: f"{new.rstrip('=')} {old.rstrip('=')}",
        lambda old, new: f"{new.replace('+', '-').replace('/', '_')},{old}",
    ],
)
def test_keys_are_base64_separated_by_commas_or_space(
    form: Callable[[str, str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old_key, new_key = b"\xfb\xff\xfe" * 11, b"\xff\xfb\xef" * 11 + b"!"
    old, new = (base64.b64encode(key).decode() for key in (old_key, new_key))
    monkeypatch.setenv(VARIABLE, form(old, new))

    ring = load_keyring(None)

    assert ring.derive("x") == Keyring(new_key, old_key).derive("x")


def test_the_command_in_the_error_makes_a_good_key() -> None:
    Keyring.parse(secrets.token_urlsafe(32))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "holds no key"),
        (" , \n", "holds no key"),
        ("not base64!", "not base64"),
        ("ünïcode" * 8, "not base64"),
        ("Z", "not base64"),
        (base64.b64encode(b"short").decode(), "needs 32 bytes, this one has 5"),
        (base64.b64encode(NEW).decode() + ",x", "not base64"),
    ],
)
def test_a_bad_key_is_refused_with_the_way_to_make_a_good_one(
    text: str, complaint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, text)

    with pytest.raises(ConfigError, match=complaint) as caught:
        load_keyring(tmp_path / "store.db")

    assert "secrets.token_urlsafe(32)" in str(caught.value)
    assert text.strip(" ,\n") == "" or text not in str(caught.value), "a secret does not belong into a message"
    assert list(tmp_path.iterdir()) == []


def test_without_a_variable_a_key_file_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        ring = load_keyring(tmp_path / "store.db")
    finally:
        os.umask(before)

    (file,) = tmp_path.iterdir()
    assert file.name == "store.db.key"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert load_keyring(tmp_path / "store.db").open(ring.seal(b"kept")) == b"kept"


def test_two_files_have_two_keys(tmp_path: Path) -> None:
    sealed = load_keyring(tmp_path / "one.db").seal(b"mine")

    with pytest.raises(WrongKey):
        load_keyring(tmp_path / "two.db").open(sealed)


def test_the_variable_comes_before_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, base64.b64encode(NEW).decode())

    assert load_keyring(tmp_path / "store.db").open(Keyring(NEW).seal(b"x")) == b"x"
    assert list(tmp_path.iterdir()) == []


def test_a_key_file_can_be_rotated_by_hand(tmp_path: Path) -> None:
    sealed = load_keyring(tmp_path / "store.db").seal(b"kept")
    file = tmp_path / "store.db.key"
    file.write_text(secrets.token_urlsafe(32) + "\n" + file.read_text())

    assert load_keyring(tmp_path / "store.db").open(sealed) == b"kept"


def test_a_key_for_what_does_not_outlive_the_process_is_nobody_elses() -> None:
    with pytest.raises(WrongKey):
        load_keyring(None).open(load_keyring(None).seal(b"x"))


def test_processes_that_start_together_agree_on_one_key(tmp_path: Path) -> None:
    script = (
        "import sys, pathlib; from rapkit.keyring import load_keyring; sys.stdin.read();"
        "print(load_keyring(pathlib.Path(sys.argv[1])).derive('x')[0].hex())"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "store.db")]
    processes = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()
    printed = set()
    for process in processes:
        assert process.stdout is not None
        printed.add(process.stdout.read())
        process.stdout.close()
        assert process.wait(30) == 0

    assert len(printed) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["store.db.key"]


def test_a_disk_that_takes_nothing_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)

    with pytest.raises(OSError, match="No space left"):
        load_keyring(tmp_path / "store.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "holds no key"),
        (b" \n", "holds no key"),
        (b"\xff\xfe\x00k", "is not a text file"),
        (b"not base64!", "is not base64"),
        (base64.b64encode(b"short"), "needs 32 bytes, this one has 5"),
    ],
)
def test_a_key_file_without_a_key_is_named_and_kept(content: bytes, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "store.db.key"
    file.write_bytes(content)

    with pytest.raises(ConfigError, match=complaint) as caught:
        load_keyring(tmp_path / "store.db")

    assert str(file) in str(caught.value)
    assert "from a backup" in str(caught.value)
    assert file.read_bytes() == content


def test_a_key_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "store.db.key").mkdir()

    with pytest.raises(ConfigError, match=r"store\.db\.key cannot be read \(Is a directory\)"):
        load_keyring(tmp_path / "store.db")


def test_a_key_file_saved_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    sealed = load_keyring(tmp_path / "store.db").seal(b"kept")
    file = tmp_path / "store.db.key"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())

    assert load_keyring(tmp_path / "store.db").open(sealed) == b"kept"


def test_no_key_is_made_for_what_another_one_has_sealed(tmp_path: Path) -> None:
    with pytest.raises(WrongKey, match=r"there is no file .*store\.db\.key.*Restore .*or set RAPKIT_SECRET_KEY"):
        load_keyring(tmp_path / "store.db", lambda: True)

    assert list(tmp_path.iterdir()) == []


def test_a_key_that_another_process_makes_meanwhile_is_taken(tmp_path: Path) -> None:
    """It had made the key before it sealed the store, so the store is no proof that the key is lost."""
    made: list[Keyring] = []

    def sealed_by_another() -> bool:
        made.append(load_keyring(tmp_path / "store.db"))
        return True

    assert load_keyring(tmp_path / "store.db", sealed_by_another).open(made[0].seal(b"x")) == b"x"
