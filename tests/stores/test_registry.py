"""What can be a store, by its URL."""

from pathlib import Path

import pytest

from rapkit.errors import ConfigError
from rapkit.stores import open_store


@pytest.mark.parametrize(
    "url", ["sqlite://:memory:", "sqlite:///", "agent.db", "sqlite:///a\0b", "postgres:///x"], ids=repr
)
def test_what_is_no_store(url: str) -> None:
    with pytest.raises(ConfigError, match=r"is no store\. Use sqlite:///file\.db"):
        open_store(url)


def test_a_password_is_not_repeated() -> None:
    with pytest.raises(ConfigError, match=r"is no store\. Use sqlite:///file\.db") as refused:
        open_store("postgres://me:s3cret@db/agent")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize(
    ("path", "file"), [(".", "store.db"), ("/", "/store.db"), ("..", "../store.db"), ("kept/", "kept/store.db")]
)
def test_a_folder_is_none_and_nothing_is_made_beside_it(
    path: str, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    (here / "kept").mkdir(parents=True)
    monkeypatch.chdir(here)

    with pytest.raises(ConfigError) as caught:
        open_store(f"sqlite:///{path}")

    assert str(caught.value) == (
        f"'sqlite:///{path}' is no store but a folder. Name a file in it, like sqlite:///{file}."
    )
    assert sorted(tmp_path.rglob("*")) == [here, here / "kept"]
