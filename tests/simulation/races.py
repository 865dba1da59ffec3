"""Which races a story has seen. A run that sees none of a kind has proved nothing about it."""

from collections.abc import Iterator
from typing import Final

from tests.simulation.observed_history import Did, Exchange, Kind, Post
from tests.simulation.rules import CANCELLED, Case

RACES: Final = (
    "cancel before the call came",
    "cancel before the confirmation",
    "cancel against the confirmation under way",
    "cancel against an event's commit",
    "cancel against an event under way",
    "cancel of events that are queued",
    "cancel against the final event under way or queued",
    "cancel after the final event had come",
    "cancel while the result is on its way",
    "cancel while the handler runs",
    "cancel of a question that is open",
    "cancel that got no answer",
    "cancel against another notice",
    "close against the confirmation",
    "close against an event",
    "close while the call comes in",
    "close that got no answer",
    "call repeated while it is accepted",
    "call repeated while it runs",
    "call repeated after its end",
    "call repeated because the server died",
    "message repeated because its answer was lost",
    "message repeated because the server died",
    "event refused",
    "nobody listens any more, events queued",
    "nobody listens any more, and cancelled",
    "generator started again after a crash",
    "generator started again after an exception",
    "emitted before the subscription, and told",
    "emitted before the subscription, and not told",
    "emit repeated because the server died",
    "answer against answer",
    "answer against cancel",
    "answer that comes too late",
    "answer that is none of the choices",
    "question that expired",
    "outcome unknown after a crash",
    "run again after a crash",
    "crash between commit and send",
    "crash while a POST is under way",
    "crash between answer and settlement",
    "crash between two attempts",
    "restart in order",
)


def races_of(case: Case) -> Iterator[str]:
    """The races of one call, each as often as it happened."""
    for notice in case.stops:
        yield from _notice(case, notice)
    yield from _calls(case)
    yield from _deliveries(case)
    yield from _runs(case)
    yield from _questions(case)
    yield from _emits(case)


def _notice(case: Case, notice: Exchange) -> Iterator[str]:
    at = notice.acknowledged
    if at is None:
        yield f"{notice.what} that got no answer"
        return
    fenced = {step.what for step in case.story.steps if step.did is Did.FENCED and step.call == case.part.id}
    aborted = {
        post.message.kind for post in case.posts if post.aborted is not None and notice.asked < post.aborted < at
    }
    if notice.what == "close":
        if Kind.CONFIRMATION in aborted or Kind.CONFIRMATION in fenced:
            yield "close against the confirmation"
        if Kind.EVENT in aborted or Kind.EVENT in fenced:
            yield "close against an event"
        if any(each.asked < at and notice.asked < (each.answered or at) for each in case.exchanges("invocation")):
            yield "close while the call comes in"
        return
    yield from _cancel(case, notice, at, fenced, aborted)


def _cancel(case: Case, notice: Exchange, at: int, fenced: set[str], aborted: set[Kind]) -> Iterator[str]:
    if case.accepted is None or at < case.accepted:
        yield "cancel before the call came"
    elif case.part.subscribes and not case.confirmed:
        yield "cancel before the confirmation"
    if any(each is not notice and each.asked < at and notice.asked < (each.answered or 0) for each in case.stops):
        yield "cancel against another notice"
    if Kind.CONFIRMATION in aborted:
        yield "cancel against the confirmation under way"
    if Kind.EVENT in fenced or Kind.FINAL in fenced:
        yield "cancel against an event's commit"
    if Kind.EVENT in aborted:
        yield "cancel against an event under way"
    queued = {message.kind for message in case.messages if message.committed < at and not message.posts}
    if Kind.EVENT in queued:
        yield "cancel of events that are queued"
    if Kind.FINAL in queued or Kind.FINAL in aborted:
        yield "cancel against the final event under way or queued"
    if any(message.kind is Kind.FINAL and _settled(message.posts, notice.asked) for message in case.messages):
        yield "cancel after the final event had come"
    result = case.result
    if result is not None and result.kind is Kind.RESULT:
        if result.text != CANCELLED and result.committed < at and not _settled(result.posts, at):
            yield "cancel while the result is on its way"
        if result.text == CANCELLED and case.handlers.runs[case.key]:
            yield "cancel while the handler runs"
        asked = any(message.kind is Kind.QUESTION and message.committed < at for message in case.messages)
        if asked and result.text == CANCELLED:
            yield "cancel of a question that is open"


def _settled(posts: list[Post], at: int) -> bool:
    return any(post.answered is not None and post.answered < at and post.status < 500 for post in posts)


def _calls(case: Case) -> Iterator[str]:
    calls = case.exchanges("invocation")
    first, *others = calls
    if any(each.asked < (first.answered or 0) for each in others):
        yield "call repeated while it is accepted"
    if any(each.answered is None for each in calls):
        yield "call repeated because the server died"
    if case.accepted is None:
        return
    ends = [message.committed for message in case.messages if message.kind in (Kind.RESULT, Kind.FINAL)]
    for each in others:
        if each.asked > case.accepted:
            ended = any(at < each.asked for at in ends)
            yield "call repeated after its end" if ended else "call repeated while it runs"


def _deliveries(case: Case) -> Iterator[str]:
    for message in case.messages:
        for before, after in zip(message.posts, message.posts[1:], strict=False):
            if before.arrived is None or before.status != 200:
                continue
            died = any(before.begun < death < after.begun for death in case.deaths)
            lost = before.answered is None and before.aborted is None
            if lost:
                yield "message repeated because its answer was lost"
            elif died:
                yield "message repeated because the server died"
    if any(post.status == 400 and post.message.kind is Kind.EVENT for post in case.posts):
        yield "event refused"
    gone = case.gone
    if gone is not None and gone.answered is not None:
        behind = case.messages[case.messages.index(gone.message) + 1 :]
        if any(message.committed < gone.answered for message in behind):
            yield "nobody listens any more, events queued"
        if case.silent_from is not None:
            yield "nobody listens any more, and cancelled"


def _runs(case: Case) -> Iterator[str]:
    part, runs = case.part, case.handlers.runs[case.key]
    if part.subscribes and part.operation != "topical" and runs > 1:
        died = any(case.result and case.result.committed < death for death in case.deaths)
        yield f"generator started again after {'a crash' if died else 'an exception'}"
    if part.repeatable and not part.subscribes and runs > 1:
        yield "run again after a crash"
    if case.result is not None and "the server was interrupted" in case.result.text:
        yield "outcome unknown after a crash"


def _questions(case: Case) -> Iterator[str]:
    answers = case.exchanges("answer")
    for number, each in enumerate(answers):
        if any(other.asked < (each.answered or 0) for other in answers[number + 1 :]):
            yield "answer against answer"
        if any(s.asked < (each.answered or 0) and each.asked < (s.answered or 0) for s in case.stops):
            yield "answer against cancel"
        if each.status in (404, 410):
            yield "answer that comes too late"
    text = "" if case.result is None else case.result.text
    if "is none of the" in text:
        yield "answer that is none of the choices"
    if "nobody answered in time" in text:
        yield "question that expired"


def _emits(case: Case) -> Iterator[str]:
    emits, result = case.exchanges("emit"), case.result
    if any(each.answered is None for each in emits):
        yield "emit repeated because the server died"
    if not case.confirmed or result is None:
        return
    told = {message.text.rstrip("ab") for message in case.messages}
    for each in emits:
        tells = case.part.emits[int(str(each.more)) - 1].does in ("tell", "two")
        if tells and each.asked < result.committed:
            yield f"emitted before the subscription, and {'' if str(each.more) in told else 'not '}told"
