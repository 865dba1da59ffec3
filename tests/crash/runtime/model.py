"""A model whose reply follows from the conversation alone, whoever asks it and how often.

What it is told, by the user, by a schedule or by its parent, is JSON: `{"say": name, "do": [[tool, arguments], ...]}`. It makes those
calls; it goes on with a `chain` as long as something is left of it; in a thread that was made for an event it makes one call about that
event, and for each time of a schedule one; in a child that was given something to put that ends with a `~` it reports that, and is done.
Else it says what it heard. A summary tells what it has not done yet, in the same way.
"""

import json
import re
from typing import Any

from rapkit.kernel.completion import Question, Reply, WantedCall
from rapkit.kernel.conversation import Conversation, Heard, Said, ToolAnswer

_APART = re.compile(r"\w_apart")
_CHAIN = re.compile(r"chain (\S+) ([1-9]\d*)")
_LAST = re.compile(r"put (\S+)~")
_SCHEDULE = re.compile(r"\(The schedule '([^']+)', due ([^)]+):\)")
Calls = list[tuple[str, dict[str, Any]]]


def command(say: str, *calls: tuple[str, dict[str, Any]]) -> str:
    """What one says to have these calls made."""
    return json.dumps({"say": say, "do": calls})


def calls_of(text: str) -> Calls:
    """The calls somebody wants made."""
    return [(name, arguments) for name, arguments in _read(text)["do"]]


def scheduled_call(schedule: str, due: str) -> tuple[str, dict[str, Any]]:
    """The call that is made for a time of a schedule."""
    return "a_put", {"key": f"{schedule}@{due}".replace(" ", "_"), "seconds": 0.01}


def reply_to(question: Question) -> Reply:
    """What the model says."""
    said, calls = _told(_own(question.conversation))
    if question.for_summary:
        return Reply(json.dumps({"say": said, "do": calls}), model="crash")
    # Providers reuse their ids, so this one does.
    wanted = (WantedCall(f"call_{number}", name, arguments) for number, (name, arguments) in enumerate(calls))
    return Reply("heard " + ", ".join(said), tuple(wanted), model="crash")


def _own(conversation: Conversation) -> Conversation:
    """In a child: from its event or task on. What was said before was said to another thread."""
    for number in reversed(range(len(conversation))):
        said = conversation[number]
        if isinstance(said, Said) and any(
            (_APART.fullmatch(call.name) and "interrupt:" in kind) or kind.startswith("task:")
            for call in said.calls
            if (kind := call.arguments.get("kind", ""))
        ):
            return conversation[number:]
    return conversation


def _told(conversation: Conversation) -> tuple[list[str], Calls]:
    """What was heard since the model last said something itself, and the calls that follow from it."""
    heard: list[Heard] = []
    for message in reversed(conversation):
        if isinstance(message, Heard):
            heard.insert(0, message)
        elif message.text:  # what it is only made to believe it said has none
            break
    texts = [text for each in heard for text in each.texts if not text.startswith("(Write the summary")]
    answers = [answer for each in heard for answer in each.answers]
    wishes = [*texts, *(_text(answer) for answer in answers if answer.call_id.startswith("note_"))]
    calls = [call for text in wishes for call in _wanted(text)]
    calls += [call for answer in answers for call in _follow_up(answer)]
    return [said for text in (*texts, *map(_text, answers)) for said in _said(text)], calls


def _said(text: str) -> list[str]:
    said = _read(text)["say"]
    return said if isinstance(said, list) else [said]


def _wanted(text: str) -> Calls:
    if due := _SCHEDULE.match(text):
        return [scheduled_call(due[1], due[2])]
    return calls_of(text)


def _read(text: str) -> dict[str, Any]:
    """What somebody said, without what the runtime says about it."""
    try:
        read = json.loads(text.rpartition("\n\n")[2])
        return read if isinstance(read, dict) else {"say": text, "do": []}
    except ValueError:
        return {"say": text, "do": []}


def _follow_up(answer: ToolAnswer) -> Calls:
    server = answer.name[:2]
    if _APART.fullmatch(answer.name) and "-e" in answer.call_id:
        return [(f"{server}put", {"key": f"{_text(answer)}!", "seconds": 0.01})]
    if chain := _CHAIN.fullmatch(_text(answer)):
        return [(f"{server}chain", {"key": f"{chain[1]}+", "left": int(chain[2]) - 1})]
    if last := _LAST.fullmatch(_text(answer)):
        return [("report_to_parent", {"text": f"{last[1]} is done", "done": True})]
    return []


def _text(answer: ToolAnswer) -> str:
    """The last part of it: before a task stands what the runtime says about tasks."""
    return str(getattr(answer.content[-1], "text", ""))
