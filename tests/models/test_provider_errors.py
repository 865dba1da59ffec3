import pytest
from pydantic_ai.exceptions import (
    ContentFilterError,
    ModelAPIError,
    ModelHTTPError,
    ModelRequestTimeout,
    UnexpectedModelBehavior,
    UserError,
)

from rapkit.errors import RapkitError
from rapkit.models import ModelError
from rapkit.models.provider_errors import MAX_WORDS, explain_error


def test_an_error_of_ours_is_one_of_rapkits() -> None:
    assert issubclass(ModelError, RapkitError)


@pytest.mark.parametrize(
    ("error", "retryable", "text"),
    [
        (KeyError("choices"), True, "openai failed with KeyError: 'choices'."),
        (UnexpectedModelBehavior("odd"), True, "openai failed with UnexpectedModelBehavior: odd."),
        (UserError("no such setting"), False, "openai cannot be asked this: no such setting."),
        (ContentFilterError("not that"), False, "openai withheld its answer: not that."),
        (ModelAPIError("gpt", "unreadable"), True, "openai failed: unreadable."),
        (ModelRequestTimeout("gpt", 30.0), True, "openai did not answer within 30 seconds."),
        (ModelHTTPError(418, "gpt", "a teapot"), False, "openai answered 418: a teapot."),
        (ModelHTTPError(502, "gpt", None), True, "openai answered 502: without saying why."),
        (ModelHTTPError(500, "gpt", {"error": {"message": "Oh no!"}}), True, "openai answered 500: Oh no!"),
        (ModelHTTPError(500, "gpt", {"detail": [1]}), True, "openai answered 500: without saying why."),
    ],
)
def test_each_failure_is_a_sentence(error: Exception, retryable: bool, text: str) -> None:
    explained = explain_error(error, "openai")
    assert (str(explained), explained.retryable) == (text, retryable)


def test_a_long_story_is_cut_and_put_on_one_line() -> None:
    text = str(explain_error(ValueError("line\n" * 1000), "openai"))
    assert "\n" not in text
    assert len(text) <= MAX_WORDS + 1


@pytest.mark.parametrize(
    "quoted", ["sk-proj-abcdefgh12345678", "Bearer abc.def.ghi", "Incorrect API key provided: abcd****wxyz"]
)
def test_what_looks_like_a_key_is_left_out(quoted: str) -> None:
    text = str(explain_error(ModelHTTPError(401, "gpt", {"message": f"No: {quoted} is wrong"}), "openai"))
    assert quoted.split()[-1] not in text
    assert "is wrong" in text


def test_a_key_of_any_look_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "0123-plain-words")
    error = ValueError("0123-plain-words and other-secret")
    assert str(explain_error(error, "openai", ["other-secret"])) == "openai failed with ValueError: … and …"


def test_what_cannot_succeed_later_has_nothing_to_wait_for() -> None:
    error = ModelHTTPError(400, "gpt", "no", headers={"Retry-After": "5"})
    assert explain_error(error, "openai").retry_after is None
