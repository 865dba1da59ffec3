from pathlib import Path

import pytest

from rapkit.errors import ConfigError
from rapkit.secret import read_bearer, read_secret, secret_variables


def test_a_secret_may_be_given_as_it_is() -> None:
    assert read_secret("s3cret:with:colons") == "s3cret:with:colons"
    assert read_secret("whsec_abc") == "whsec_abc"


def test_a_secret_may_come_from_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", "s3cret")

    assert read_secret("env:MY_SECRET") == "s3cret"


def test_a_secret_may_come_from_a_file_without_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")

    assert read_secret(f"file:{tmp_path}/secret") == "s3cret"


def test_space_around_a_secret_does_not_belong_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SECRET", " s3cret\n")

    assert read_secret("env:MY_SECRET") == "s3cret"


@pytest.mark.parametrize("value", ["s3cret\nsecond", "s3crët", "s3\x00cret"])
def test_a_token_that_no_header_can_hold_is_refused_and_not_repeated(tmp_path: Path, value: str) -> None:
    (tmp_path / "token").write_text(value)

    with pytest.raises(ConfigError, match="The token cannot be sent") as refused:
        read_bearer(f"file:{tmp_path}/token")
    assert "s3" not in str(refused.value)


@pytest.mark.parametrize(("value", "state"), [(None, "not set"), ("", "empty"), (" ", "empty")])
def test_a_variable_that_has_no_value_is_named(monkeypatch: pytest.MonkeyPatch, value: str | None, state: str) -> None:
    monkeypatch.delenv("MY_SECRET", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_SECRET", value)

    with pytest.raises(ConfigError, match=f"The environment variable MY_SECRET is {state}"):
        read_secret("env:MY_SECRET")


def test_a_file_that_cannot_be_read_is_named_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfes3cret")

    for name in ("missing", "binary", "."):
        with pytest.raises(ConfigError, match="No secret can be read from ") as refused:
            read_secret(f"file:{tmp_path}/{name}")
        assert "s3cret" not in str(refused.value)


def test_it_is_known_which_variables_secrets_were_read_from(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("rapkit.secret._VARIABLES", set())
    monkeypatch.setenv("MY_SECRET", "s3cret")
    monkeypatch.setenv("COLOUR", "green")
    (tmp_path / "secret").write_text("s3cret")
    for reference in ("env:MY_SECRET", "env:MY_SECRET", f"file:{tmp_path}/secret", "COLOUR"):
        read_secret(reference)

    assert secret_variables() == {"MY_SECRET"}
