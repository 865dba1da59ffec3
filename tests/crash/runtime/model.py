"""A model whose reply follows from the conversation alone, whoever asks it and how often.

What the user says is JSON: `{"say": name, "do": [[tool, arguments], ...]}`. It makes those calls; it goes on with a `chain` as long as
something is left of it; and in a thread that was made for an event it makes one call about that event. Else it says what it heard.
"""

import json
import re
from typing import Any

from rapkit.kernel.completion import Question, Reply, WantedCall
from rapkit.kernel.conversation import Answer, Conversation, Heard, Said

_APART = re.compile(r"\w_apart")
_CHAIN = re.compile(r"chain (\S+) ([1-9]\d*)")
Calls = list[tuple[str, dict[str, Any]]]


def command(say: str, *calls: tuple[str, dict[str, Any]]) -> str:
    """What the user says to have these calls made."""
    return json.dumps({"say": say, "do": calls})


def calls_of(text: str) -> list[tuple[str, dict[str, Any]]]:
    """The calls the user wants made."""
    return [(name, arguments) for name, arguments in json.loads(text)["do"]]


def reply_to(question: Question) -> Reply:
    """What the model says."""
    texts, answers = _news(_own(question.conversation))
    calls: Calls = [call for text in texts for call in calls_of(text)]
    calls += [call for answer in answers for call in _follow_up(answer)]
    heard = [*(json.loads(text)["say"] for text in texts), *map(_text, answers)]
    # Providers reuse their ids, so this one does.
    wanted = (WantedCall(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(calls))
    return Reply("heard " + ", ".join(heard), tuple(wanted), model="crash")


def _own(conversation: Conversation) -> Conversation:
    """In a thread made for an event: from that event on. What the user said before was said to another thread."""
    for number in reversed(range(len(conversation))):
        said = conversation[number]
        if isinstance(said, Said) and any(
            _APART.fullmatch(call.name) and "interrupt:" in call.arguments.get("kind", "") for call in said.calls
        ):
            return conversation[number:]
    return conversation


def _news(conversation: Conversation) -> tuple[list[str], list[Answer]]:
    """What was heard since the model last said something itself: what it is only made to believe it said has no text."""
    texts: list[str] = []
    answers: list[Answer] = []
    for message in reversed(conversation):
        if isinstance(message, Heard):
            texts[:0] = message.texts
            answers[:0] = message.answers
        elif message.text:
            break
    return texts, answers


def _follow_up(answer: Answer) -> Calls:
    server = answer.name[:2]
    if _APART.fullmatch(answer.name) and "-e" in answer.call_id:
        return [(f"{server}put", {"key": f"{_text(answer)}!", "seconds": 0.01})]
    if chain := _CHAIN.fullmatch(_text(answer)):
        return [(f"{server}chain", {"key": f"{chain[1]}+", "left": int(chain[2]) - 1})]
    return []


def _text(answer: Answer) -> str:
    return "".join(getattr(item, "text", "") for item in answer.content)
