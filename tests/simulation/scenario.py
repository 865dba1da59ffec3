"""What is to happen in one thread: its calls, what their handlers do, and what the runtime does besides. Drawn by lot from a seed."""

from dataclasses import dataclass
from random import Random
from typing import Final, Literal

from tests.simulation.observed_history import Did, Kind

GENERATORS: Final = ("numbered", "restless", "paced", "batched")
SUBSCRIPTIONS: Final = (*GENERATORS, "topical")
QUESTION: Final = "Which?"
CHOICES: Final = ("red", "green", "blue")
EXPIRES: Final = 2.0
"""Seconds until a question expires that nobody will answer."""


Weather = Literal["calm", "rough", "deserted"]
"""How POSTs fare: all well, with all kinds of trouble, or nobody listens any more."""


@dataclass(frozen=True, slots=True)
class Moment:
    """So many seconds after something was seen to happen to a call, or after the beginning."""

    delay: float
    did: Did | None = None
    what: str = ""
    call: str = ""


@dataclass(frozen=True, slots=True)
class Act:
    """Something the runtime does: "cancel", "close" or "repeat" (an invocation, or what has come of one)."""

    what: str
    call: str
    moment: Moment


@dataclass(frozen=True, slots=True)
class Emit:
    """An event of a topic, and what its function is to make of it."""

    pause: float
    does: str


@dataclass(frozen=True, slots=True)
class Answer:
    """A user's answer to a question, right or wrong."""

    pause: float
    selected: int


@dataclass(frozen=True, slots=True)
class Part:
    """One call. `script` is what its handler does, one word after the other."""

    id: str
    operation: str
    script: tuple[str, ...]
    moment: Moment
    emits: tuple[Emit, ...] = ()
    answers: tuple[Answer, ...] = ()
    expires: bool = False

    @property
    def asks(self) -> bool:
        """Whether the user is asked."""
        return self.operation.startswith("ask")

    @property
    def repeatable(self) -> bool:
        """Whether its handler may be run again after a crash."""
        return self.operation.endswith("again") or self.subscribes

    @property
    def subscribes(self) -> bool:
        """Whether it is a subscription."""
        return self.operation in SUBSCRIPTIONS

    @property
    def endless(self) -> bool:
        """Whether somebody has to end it, as far as its script says."""
        return self.script[-1:] == ("stay",) or (self.asks and not self.answers and not self.expires)


@dataclass(frozen=True, slots=True)
class Scenario:
    """A thread."""

    thread: str
    parts: tuple[Part, ...]
    acts: tuple[Act, ...]
    weather: Weather


def draw(seed: str, number: int) -> Scenario:
    """The plot of a thread."""
    dice = Random(f"{seed}/{number}")
    parts = tuple(_part(dice, f"call_{each}") for each in range(1, dice.choices((2, 3, 4), (60, 30, 10))[0]))
    weather: Weather = dice.choices(("calm", "rough", "deserted"), (40, 45, 15))[0]
    acts = [_repeat(dice, part) for part in parts if dice.random() < 0.25]
    acts += [_cancel(dice, part) for part in parts if dice.random() < 0.5]
    acts += [_cancel(dice, part) for part in parts if dice.random() < 0.1]
    if weather == "deserted":
        acts += [_cancel_soon_after_the_answer(dice, part) for part in parts if part.subscribes]
    if dice.random() < 0.3:
        acts.append(Act("close", "", moment_of(dice, dice.choice(parts))))
    return Scenario(f"t{number}", parts, tuple(acts), weather)


_OPERATIONS = {
    "numbered": 32,
    "restless": 8,
    "paced": 6,
    "batched": 8,
    "topical": 20,
    "ask": 8,
    "ask_again": 6,
    "work": 6,
    "work_again": 6,
}


def _part(dice: Random, id: str) -> Part:
    (operation,) = dice.choices(list(_OPERATIONS), list(_OPERATIONS.values()))
    moment = Moment(dice.uniform(0, 0.25))
    if operation == "topical":
        emits = tuple(_emit(dice) for _ in range(dice.randint(1, 5)))
        return Part(id, operation, (), moment, emits=emits)
    if operation in GENERATORS:
        return Part(id, operation, _generators_script(dice), moment)
    words = tuple(dice.choices(("work", "view", "keep"), (6, 2, 1), k=dice.randint(0, 4)))
    end = dice.choices(("return", "refuse", "break"), (70, 15, 15))[0]
    script = (*words[:1], "effect", *words[1:], end)
    answers: tuple[Answer, ...] = ()
    if operation.startswith("ask") and dice.random() < 0.8:
        answers = tuple(_answer(dice) for _ in range(dice.choice((1, 1, 2, 3))))
    return Part(id, operation, script, moment, answers=answers, expires=dice.random() < 0.5)


def _generators_script(dice: Random) -> tuple[str, ...]:
    words = dice.choices(
        ("event", "pair", "checkpoint", "pause", "view", "keep", "break"),
        (52, 8, 6, 16, 4, 4, 10),
        k=dice.randint(0, 6),
    )
    return (*words, dice.choices(("final", "return", "refuse", "stay"), (35, 25, 10, 30))[0])


def _emit(dice: Random) -> Emit:
    words = ("tell", "nothing", "two", "stumble", "break", "final", "refuse")
    return Emit(_pause(dice), dice.choices(words, (60, 6, 8, 6, 4, 12, 4))[0])


def _answer(dice: Random) -> Answer:
    selected = dice.choices((0, 1, 2, 7, -1), (30, 30, 25, 10, 5))[0]
    return Answer(dice.choice((0.0, 0.0, dice.uniform(0, 0.02), dice.uniform(0, 0.4))), selected)


def _pause(dice: Random) -> float:
    return dice.choice((0.0, dice.uniform(0, 0.01), dice.uniform(0, 0.08)))


def _repeat(dice: Random, part: Part) -> Act:
    at_once = Moment(dice.uniform(0, 0.003), Did.ASKED, "invocation", part.id)
    return Act("repeat", part.id, dice.choice((at_once, Moment(dice.uniform(0, 0.4)), moment_of(dice, part))))


def _cancel(dice: Random, part: Part) -> Act:
    return Act("cancel", part.id, moment_of(dice, part))


def _cancel_soon_after_the_answer(dice: Random, part: Part) -> Act:
    what = dice.choice((Kind.CONFIRMATION, Kind.EVENT))
    return Act("cancel", part.id, Moment(dice.uniform(0.003, 0.03), Did.ANSWERED, what, part.id))


def moment_of(dice: Random, part: Part, asked: tuple[str, ...] = ("invocation",)) -> Moment:
    """Mostly close to a moment at which something else happens too: to a message, or to what was asked of the server."""
    if dice.random() < 0.2:
        return Moment(dice.uniform(0, 0.4))
    delay = dice.choice((0.0, dice.uniform(0, 0.002), dice.uniform(0, 0.01), dice.uniform(0, 0.04)))
    first, second = (Kind.CONFIRMATION, Kind.EVENT) if part.subscribes else (Kind.RESULT, Kind.QUESTION)
    what = dice.choices((first, second, Kind.FINAL, *asked), (30, 40, 20, *(10 for _ in asked)))[0]
    requests, messages = (Did.ASKED, Did.ACKNOWLEDGED), (Did.COMMITTED, Did.BEGUN, Did.ARRIVED, Did.ANSWERED)
    return Moment(delay, dice.choice(requests if what in asked else messages), what, part.id)


def crash_moment(dice: Random, part: Part) -> Moment:
    """When to lose the server."""
    return moment_of(dice, part, ("invocation", "cancel", "emit", "answer"))
