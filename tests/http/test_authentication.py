import pytest

from rapkit.http.authentication import Callers


@pytest.mark.parametrize(
    ("client", "name"), [("127.0.0.1", "local"), ("::1", "local"), (None, "local"), ("10.0.0.9", None)]
)
def test_without_tokens_the_peer_s_address_counts(client: str | None, name: str | None) -> None:
    assert Callers({}).identify(b"", client, b"localhost") == name
