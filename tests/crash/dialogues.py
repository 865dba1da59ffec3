"""What holds for calls that ask the user to choose: a question is asked once, the first answer counts, and nothing is done twice.

A suspended call is out of reach of any crash. So nobody may say that it is not known what became of a call while all that has died since
it was sent died between one of its questions and the answer to that.
"""

from collections.abc import Iterator

from tests.crash.history import Answer, Call, Delivery, History, Sent

ASKING = {"ask": 1, "ask_twice": 2, "ask_again": 1}
"""The tools that ask, and how many questions."""
CHOICES = ("yes", "no", "maybe")

_REPEATABLE = frozenset({"ask_again"})


def prompt(n: int, question: int) -> str:
    return f"Question {question} of {n}?"


def account_dialogues(history: History) -> Iterator[str]:
    answers: dict[int, list[Answer]] = {}
    for answer in history.answers:
        answers.setdefault(answer.n, []).append(answer)
    for sent in history.sent:
        if sent.call.tool in ASKING:
            firsts = {answer.question: answer for answer in answers.get(sent.call.n, ()) if answer.first}
            yield from _asked(history, sent.call, firsts)
            yield from _answered(history, sent, firsts)
            yield from _done(history, sent.call)
    for answer in history.answers:
        yield from _refused(answer)


def _asked(history: History, call: Call, answers: dict[int, Answer]) -> Iterator[str]:
    questions = [message for message in history.messages(call) if message.type == "user_choice"]
    prompts = [question.message["prompt"] for question in questions]
    if prompts != [prompt(call.n, number) for number in range(1, ASKING[call.tool] + 1)][: len(prompts)]:
        yield f"{call.name} asked what it should not, not in order, or anew (CHO-2): {prompts}"
        return
    if len({question.message["response_url"] for question in questions}) < len(questions):
        yield f"{call.name} used a response_url for several questions"
    for number, question in enumerate(questions[1:], start=2):
        before = answers.get(number - 1)
        if before is None or before.at > question.at or before.selected >= len(CHOICES):
            yield f"{call.name} asked question {number} without an answer to the one before"


def _answered(history: History, sent: Sent, answers: dict[int, Answer]) -> Iterator[str]:
    call = sent.call
    chosen = [answers[number].selected for number in sorted(answers)]
    for result in history.results(call):
        if result.text == f"{call.tool} {call.n} {' '.join(_label(each) for each in chosen)}":
            if len(chosen) != ASKING[call.tool]:
                yield f"{call.name} was answered {result.text!r} after {len(chosen)} answers"
            if history.traces[call.n, "end"] != 1 and call.tool not in _REPEATABLE:
                yield f"{call.name} was answered {result.text!r}, and was done {history.traces[call.n, 'end']} times"
        elif result.text.startswith("Error: ") and result.text.startswith(_no_choice(call, answers)):
            if history.traces[call.n, "resumed"]:
                yield f"{call.name} was refused for an answer, and went on all the same"
        elif not _may_fail(history, sent, result, answers):
            yield f"{call.name} was answered {result.text!r} when the user had chosen {chosen}"


def _label(selected: int) -> str:
    return CHOICES[selected] if selected < len(CHOICES) else f"choice {selected}, which there is not"


def _no_choice(call: Call, answers: dict[int, Answer]) -> str:
    """How the result begins if an answer was none of the choices; nothing begins so if they all were."""
    bad = next((answer for _, answer in sorted(answers.items()) if answer.selected >= len(CHOICES)), None)
    if bad is None:
        return "nothing"
    return f"Error: {prompt(call.n, bad.question)!r}: {bad.selected} is none of the {len(CHOICES)} choices"


def _may_fail(history: History, sent: Sent, result: Delivery, answers: dict[int, Answer]) -> bool:
    if history.may_be_given_up(sent.at, result):
        return True
    unknown = sent.call.tool not in _REPEATABLE and history.may_be_unknown(sent.at, result)
    return unknown and any(
        not _is_suspended(history, sent.call, death.at, answers)
        for death in history.deaths
        if death.who == "server" and sent.at <= death.at <= result.at
    )


def _is_suspended(history: History, call: Call, at: float, answers: dict[int, Answer]) -> bool:
    """Whether a call was certainly waiting for its user then: the question had arrived, and nobody had begun to answer it."""
    asked = [message for message in history.messages(call) if message.type == "user_choice" and message.at < at]
    answer = answers.get(len(asked))
    return bool(asked) and (answer is None or answer.at > at)


def _done(history: History, call: Call) -> Iterator[str]:
    for what in ("resumed", "end"):
        if history.traces[call.n, what] > 1 and call.tool not in _REPEATABLE:
            yield f"{call.name} got past its last answer and did its work {history.traces[call.n, what]} times ({what})"


def _refused(answer: Answer) -> Iterator[str]:
    """An open question takes the first answer. That it is no longer open is only told to those who may have answered it themselves."""
    *before, last = answer.statuses or (None,)
    unheard = any(status is None or status >= 500 for status in before)
    if last != 200 and not (last == 410 and (unheard or not answer.first)):
        yield f"answer {answer.question} to call {answer.n} was answered {answer.statuses}"
