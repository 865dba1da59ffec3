"""A provider that refuses whatever any provider might refuse. It knows nothing of how conversations are made."""

import json
import re

from rapkit.kernel.conversation import Conversation, Heard, Said, ToolAnswer
from rapkit.protocol import TextContent

_ID = re.compile(r"[A-Za-z0-9_-]{1,40}")


def accept(conversation: Conversation) -> None:
    """An AssertionError says what is wrong with it."""
    assert conversation, "nothing is asked"
    first = conversation[0]
    assert isinstance(first, Heard), "it does not begin with something heard"
    assert first.texts, "it does not begin with a text"
    ids = [call.id for said in conversation if isinstance(said, Said) for call in said.calls]
    assert len(ids) == len(set(ids)), "two calls have one id"
    for number, message in enumerate(conversation):
        if isinstance(message, Heard):
            assert number % 2 == 0, "heard twice in a row"
            before = conversation[number - 1] if number else Said()
            assert isinstance(before, Said)
            _accept_heard(message, before)
        else:
            assert number % 2 == 1, "said twice in a row"
            assert not message.calls or number + 1 < len(conversation), "calls at the end, without answers"
            _accept_said(message)


def accept_question(conversation: Conversation) -> None:
    accept(conversation)
    assert isinstance(conversation[-1], Heard), "there is nothing to reply to"


def _accept_said(said: Said) -> None:
    assert said.text.strip() or said.calls, "nothing was said"
    for call in said.calls:
        assert _ID.fullmatch(call.id), f"not an id: {call.id}"
        assert call.name
        json.dumps(call.arguments, allow_nan=False)


def _accept_heard(heard: Heard, before: Said) -> None:
    assert heard.answers or heard.texts, "nothing was heard"
    assert all(text.strip() for text in heard.texts), "a blank text"
    asked = [(call.id, call.name) for call in before.calls]
    given = [(answer.call_id, answer.name) for answer in heard.answers]
    assert given == asked, f"called were {asked}, answered {given}"
    for answer in heard.answers:
        _accept_answer(answer)


def _accept_answer(answer: ToolAnswer) -> None:
    assert answer.content, "an answer without content"
    for item in answer.content:
        assert not isinstance(item, TextContent) or item.text.strip(), "a blank answer"
