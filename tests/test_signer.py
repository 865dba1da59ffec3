import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapkit.errors import ConfigError
from rapkit.signer import Signer

OLD, NEW = b"o" * 32, b"n" * 32
signer = Signer([NEW])


@given(st.lists(st.text(alphabet=st.characters(), max_size=40), max_size=5))
def test_what_was_signed_is_read_back_whatever_it_is(parts: list[str]) -> None:
    """OAU-2"""
    token = signer.sign("oauth", *parts)

    assert signer.read("oauth", token) == tuple(parts)
    assert set(token) <= set(string.ascii_letters + string.digits + "-_.")


@given(st.text(alphabet=st.characters(), max_size=200))
def test_what_we_did_not_sign_is_nothing_and_no_error(text: str) -> None:
    """OAU-2"""
    assert signer.read("oauth", text) is None


def test_a_token_with_one_character_changed_is_not_ours() -> None:
    """OAU-2"""
    token = signer.sign("oauth", "box", "flow")
    alphabet = string.ascii_letters + string.digits + "-_.="

    changed = {token[:at] + other + token[at + 1 :] for at in range(len(token)) for other in alphabet} - {token}
    longer = {token + other for other in alphabet} | {other + token for other in alphabet}
    shorter = {token[:at] for at in range(len(token))}

    assert [each for each in changed | longer | shorter if signer.read("oauth", each) is not None] == []


def test_a_token_for_one_purpose_is_worth_nothing_for_another() -> None:
    token = signer.sign("oauth", "box", "flow")

    assert signer.read("choice", token) is None
    assert signer.read("oauth\0", token) is None


def test_after_a_rotation_old_tokens_are_read_and_new_ones_are_signed_with_the_new_key() -> None:
    before, during, after = Signer([OLD]), Signer([NEW, OLD]), Signer([NEW])

    assert during.read("oauth", before.sign("oauth", "x")) == ("x",)
    assert after.read("oauth", during.sign("oauth", "x")) == ("x",)
    assert after.read("oauth", before.sign("oauth", "x")) is None


def test_a_token_too_long_to_be_read_is_not_signed_either() -> None:
    with pytest.raises(ValueError, match="4096"):
        signer.sign("oauth", "x" * 5000)

    assert signer.read("oauth", "x" * 1_000_000) is None


def test_a_signer_without_a_key_is_a_mistake_that_is_told() -> None:
    with pytest.raises(ConfigError, match="at least one key"):
        Signer([])
