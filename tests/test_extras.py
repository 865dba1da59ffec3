import json
from importlib import metadata

import pytest

from rapkit.extras import how_to_install


class Installed:
    """An installation that came from a URL, or from an index."""

    def __init__(self, url: str | None, *, editable: bool) -> None:
        self._url = url
        self._editable = editable

    def read_text(self, filename: str) -> str | None:
        return (
            None
            if self._url is None or filename != "direct_url.json"
            else json.dumps({"url": self._url, "dir_info": {"editable": self._editable}})
        )


@pytest.mark.parametrize(
    ("url", "source"),
    [
        (None, "rapkit"),
        ("file:///home/me/my%20work/rapkit", "/home/me/my work/rapkit"),
        ("https://example.org/rapkit.tar.gz", "rapkit"),
    ],
    ids=["an index", "a folder", "a URL"],
)
def test_an_extra_comes_from_where_the_rest_came_from(
    url: str | None, source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed(url, editable=False))

    assert how_to_install("agent") == f'pip install "{source}[agent]"'


def test_what_follows_its_source_goes_on_to_do_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metadata, "distribution", lambda _name: Installed("file:///rapkit", editable=True))

    assert how_to_install("agent") == 'pip install -e "/rapkit[agent]"'


def test_what_was_not_installed_at_all_is_taken_from_an_index(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> metadata.Distribution:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", missing)

    assert how_to_install("oauth") == 'pip install "rapkit[oauth]"'
