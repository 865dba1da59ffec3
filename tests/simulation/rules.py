"""What must hold of every call, whatever happened and in whatever order."""

import itertools
from collections.abc import Callable, Iterator
from functools import cached_property

from tests.simulation.event_order import number_breaches
from tests.simulation.observed_history import Did, Exchange, Kind, Message, ObservedHistory, Post
from tests.simulation.scenario import CHOICES, Part
from tests.simulation.tools import Handlers

CANCELLED = "Error: Cancelled."
_INTERRUPTED = ("Error: the server was interrupted", "interrupted 3 times ")
_GONE = (410,)
_ENDS = (Kind.RESULT, Kind.FINAL)
_MOST_UNHEARD = 3


class Case:
    """One call, and what was seen of it."""

    def __init__(self, story: ObservedHistory, part: Part, handlers: Handlers) -> None:
        self.story = story
        self.part = part
        self.handlers = handlers
        self.key = (story.thread, part.id)
        self.messages = [message for message in story.messages if message.call == part.id]
        self.posts = sorted((post for message in self.messages for post in message.posts), key=lambda post: post.begun)

    def exchanges(self, what: str) -> list[Exchange]:
        """What was asked of the server about this call; of notices those that meant it."""
        return [each for each in self.story.exchanges if each.what == what and each.call in (None, self.part.id)]

    @cached_property
    def result(self) -> Message | None:
        """What it was answered with, or confirmed."""
        return next((each for each in self.messages if each.kind in (Kind.RESULT, Kind.CONFIRMATION)), None)

    @cached_property
    def accepted(self) -> int | None:
        """When it was first acknowledged."""
        return min((e.acknowledged for e in self.exchanges("invocation") if e.acknowledged is not None), default=None)

    @cached_property
    def stops(self) -> list[Exchange]:
        """The notices that could have ended it, heeded or not."""
        return [*self.exchanges("cancel"), *self.exchanges("close")]

    @cached_property
    def silent_from(self) -> int | None:
        """From when on nothing more may be told, because the server has acknowledged that nobody wants to hear it (SUB-5, CLO-5)."""
        cancelled = [each.acknowledged for each in self.exchanges("cancel")]
        closed = [
            each.acknowledged
            for each in self.exchanges("close")
            if self.accepted is not None and self.accepted < each.asked  # a call that comes later begins anew (CLO-11)
        ]
        return min((at for at in [*cancelled, *closed] if at is not None), default=None)

    @cached_property
    def deaths(self) -> list[int]:
        """When the server was lost."""
        return [step.number for step in self.story.steps if step.did is Did.DIED]

    @cached_property
    def gone(self) -> Post | None:
        """The first POST of the subscription that was told that nobody listens any more."""
        counted = (post for post in self.posts if post.message.kind is not Kind.VIEW)
        told = (post for post in counted if post.arrived is not None and post.status in _GONE)
        return next(told, None) if self.confirmed else None

    @property
    def confirmed(self) -> bool:
        """Whether it has become a subscription."""
        return self.result is not None and self.result.kind is Kind.CONFIRMATION

    @property
    def interrupted(self) -> bool:
        """Whether somebody may have ended it before its time."""
        return bool(self.stops) or self.gone is not None

    @cached_property
    def heard(self) -> list[Message]:
        """What the runtime has seen and not asked to see again, in order."""
        arrivals = {
            message: min(post.arrived for post in message.posts if post.arrived is not None and post.status < 500)
            for message in self.messages
            if message.delivered
        }
        return sorted(arrivals, key=arrivals.__getitem__)


def breaches_of(case: Case) -> list[str]:
    """What must not have happened."""
    return [breach for rule in _RULES for breach in rule(case)]


def _one_result(case: Case) -> Iterator[str]:
    results = [message for message in case.messages if message.kind in (Kind.RESULT, Kind.CONFIRMATION)]
    if len(results) > 1:
        yield f"CB-5, INV-17: it was answered {len(results)} times: {', '.join(map(str, results))}"
    if case.accepted is not None and not results:
        yield "INV-11: it was acknowledged and never answered"


def _everything_gets_there(case: Case) -> Iterator[str]:
    for message in case.messages:
        dropped = case.interrupted and (case.confirmed or message is not case.result)
        dropped = dropped or message.kind is Kind.VIEW  # a newer one replaces it, and what is refused is not sent again
        if not message.delivered and not dropped:
            yield f"INV-11: {message} was never delivered"


def _answered_as_it_should_be(case: Case) -> Iterator[str]:
    if case.result is None or case.confirmed:
        return
    text = case.result.text
    if text == CANCELLED:
        if not case.stops:
            yield "it was answered as if it was cancelled, and nobody has"
    elif any(words in text for words in _INTERRUPTED):
        if not case.deaths or (case.part.repeatable and len(case.deaths) < 3):
            yield f"semantics 23: it was answered with {text!r}, and was not"
    elif case.part.subscribes:
        if not _may_fail_unconfirmed(case.part):
            yield f"SUB-2: it was answered with {text!r}"
    elif not _follows(text, case.part):
        yield f"it was answered with {text!r}, which does not follow from {case.part}"


def _may_fail_unconfirmed(part: Part) -> bool:
    """Whether its generator may raise before its first event or checkpoint, which is the result of the call then (semantics 25)."""
    # "restless" passes over the others.
    confirming = ("event", "pair") if part.operation == "restless" else ("event", "pair", "final", "checkpoint")
    before = itertools.takewhile(lambda word: word not in confirming, part.script)
    return any(word in ("break", "refuse") for word in before)


def _follows(text: str, part: Part) -> bool:
    if part.asks and text.startswith("Error: 'Which?': "):
        return True
    if part.asks and not text.startswith("Error: "):
        chosen, _, text = text.partition(" ")
        if chosen not in CHOICES:
            return False
    return {"return": text == "done", "refuse": text == "Error: it does not want to"}.get(
        part.script[-1], text.startswith("Error: ")
    )


def _confirmed(case: Case) -> Iterator[str]:
    if not case.confirmed and any(message.kind in (Kind.EVENT, Kind.FINAL) for message in case.messages):
        yield "SUB-2: it told events and was never confirmed"


def _in_order(case: Case) -> Iterator[str]:
    """First in, first out: nothing begins before all that was committed before it has been answered for good (semantics 18).

    Views are apart: they wait for nothing but each other, and nothing waits for them.
    """
    for post in case.posts:
        if post.message.text == CANCELLED or post.message.kind is Kind.VIEW:
            continue  # all that was before it was deleted; views have lanes of their own
        for earlier in case.messages:
            if earlier is post.message:
                break
            if earlier.kind is Kind.VIEW:
                continue
            if not any(p.answered is not None and p.answered < post.begun and p.status < 500 for p in earlier.posts):
                rule = "SUB-2" if earlier is case.result else "semantics 18"
                yield f"{rule}: {post.message} was begun (step {post.begun}) before {earlier} had got there"
                return


def _newest_view_last(case: Case) -> Iterator[str]:
    """No view is sent after a newer one (semantics 18)."""
    views = [message for message in case.messages if message.kind is Kind.VIEW]
    for number, older in enumerate(views):
        begun = min((post.begun for newer in views[number + 1 :] for post in newer.posts), default=None)
        late = [post.begun for post in older.posts if begun is not None and post.begun > begun]
        if late:
            yield f"semantics 18: {older} was begun (step {late[0]}) after a newer view (step {begun})"


def _nothing_after_the_end(case: Case) -> Iterator[str]:
    for number, message in enumerate(case.messages):
        if message.kind in _ENDS and case.messages[number + 1 :]:
            yield f"SUB-4, CB-5: after {message} there was {case.messages[number + 1]}"


def _silent_after_the_notice(case: Case) -> Iterator[str]:
    silent = case.silent_from
    if silent is None:
        return
    real = case.result is not None and case.result.kind is Kind.RESULT and case.result.text != CANCELLED
    if real and case.result is not None and case.result.committed > silent:
        yield f"semantics 20: after it was cancelled (step {silent}) it was answered with {case.result}"
    for post in case.posts:
        # A result that was committed before stands, and so does what is in the lane before it. Views have lanes of their own.
        if (real and post.message.kind is not Kind.VIEW) or (post.message is case.result and not case.confirmed):
            continue
        if post.begun > silent:
            yield f"SUB-5: {post.message} was begun (step {post.begun}) after the notice was acknowledged (step {silent})"
        elif post.arrived is not None and post.arrived > silent:
            yield f"SUB-5: {post.message} arrived (step {post.arrived}) after the notice was acknowledged (step {silent})"


def _ends_when_nobody_listens(case: Case) -> Iterator[str]:
    gone = case.gone
    if gone is None or gone.answered is None:
        return
    answered = gone.answered
    later = {post.message.id for post in case.posts if post.begun > answered and post.message is not gone.message}
    # Until the subscription is stopped some of what was queued may leave; and a server may die before it has written what it heard.
    most = _MOST_UNHEARD + sum(death > gone.begun for death in case.deaths)
    if len(later) > most:
        yield f"semantics 18: {len(later)} more messages were sent after the answer {gone.status} (step {answered})"


def _effects(case: Case) -> Iterator[str]:
    effects, runs = case.handlers.effects[case.key], case.handlers.runs[case.key]
    if effects > 1 and not (case.part.repeatable and case.deaths):
        yield f"INV-17, semantics 23: it took effect {effects} times"
    first = min((each.asked for each in case.exchanges("invocation")), default=None)
    before = [each.acknowledged for each in case.exchanges("cancel") if each.acknowledged is not None]
    if runs and first is not None and any(at < first for at in before):
        yield "semantics 20: it was cancelled before it came, and its handler ran"
    if case.result is not None and case.result.text.endswith("done") and not effects:
        yield "it says that it is done, and did nothing"


def _answers(case: Case) -> Iterator[str]:
    """The first answer counts (CHO-2); one is refused only if there is nothing left to answer."""
    answers = case.exchanges("answer")
    result = case.result
    for answer in answers:
        ended = result is not None and answer.answered is not None and result.committed < answer.answered
        is_open = not ended and not case.stops and not case.part.expires
        if answer.status in (404, 410) and is_open:
            yield f"CHO-2: an answer was refused (step {answer.answered}) although the question was open"
        earlier = [other for other in answers if other is not answer and other.asked < answer.asked]
        arrived = min((p.arrived for p in result.posts if p.arrived is not None), default=None) if result else None
        if answer.status == 200 and not earlier and arrived is not None and answer.asked > arrived:
            yield f"CHO-2: an answer was taken (step {answer.answered}) although the call had ended (step {arrived})"
    if result is None or not result.text.endswith("done") or not case.part.asks:
        return
    first = [
        answer.more
        for answer in answers
        if not any(o.acknowledged is not None and o.acknowledged < answer.asked for o in answers if o is not answer)
    ]
    if CHOICES.index(result.text.partition(" ")[0]) not in first:
        yield f"CHO-2: the answer {result.text!r} is not the first one: {first}"


def _numbers(case: Case) -> Iterator[str]:
    if case.confirmed:
        events = [message for message in case.heard if message.kind in (Kind.EVENT, Kind.FINAL)]
        yield from number_breaches(case.part, events, case.exchanges("emit"), case.result, case.interrupted)


_RULES: list[Callable[[Case], Iterator[str]]] = [
    _one_result,
    _everything_gets_there,
    _answered_as_it_should_be,
    _confirmed,
    _in_order,
    _nothing_after_the_end,
    _silent_after_the_notice,
    _newest_view_last,
    _ends_when_nobody_listens,
    _effects,
    _answers,
    _numbers,
]
