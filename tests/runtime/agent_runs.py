"""The two ways an agent can live: with a worker, or hibernating, which is without one and woken each time its bell rings.

Every scenario is told once and lived both ways. Hibernating, the agent that is talked to only receives. Whatever is done is done by another
one on the same store, opened when the bell rings and gone when nothing is due: no thread ever meets the same worker twice.
"""

import contextlib
from collections.abc import Callable, Iterator
from enum import StrEnum
from typing import Any

import pytest

from rapkit.runtime.agent import Agent
from rapkit.runtime.config import AgentConfig
from rapkit.runtime.engine import AgentEnvironment, open_engine
from rapkit.runtime.wake_hook import OnAccept

_OFTEN = 0.02


class AgentRun(StrEnum):
    WORKING = "working"
    HIBERNATING = "hibernating"


SCENARIOS = {
    f"tests.runtime.{name}"
    for name in (
        *(
            "test_agent",
            "test_model_completion",
            "test_audit_log",
            "test_callbacks",
            "test_calls",
            "test_cancellation",
            "test_close",
        ),
        *(
            "test_discovery",
            "test_dispatch",
            "test_in_process",
            "test_interruption",
            "test_models",
            "test_user_requests",
        ),
        *("test_providers", "test_restart", "test_serial", "test_state", "test_store_trouble", "test_subscriptions"),
        *("test_tokens", "test_window", "test_budgets", "test_children", "test_compaction", "test_confirmations"),
        *(
            "test_questions",
            "test_timers",
            "api.test_responses",
            "api.test_events",
            "api.test_openapi",
            "api.test_idempotency",
        ),
    )
}
"""Where every test in which an agent works is lived both ways."""

_PIECES = "what a model says piece by piece is heard only in the process that asks it"
_INTERRUPTING = (
    "only the process that asks a model can let it be; elsewhere the thread is closed when the model has spoken"
)
_ONE_WORKER = "it is about how much one worker has in hand at once, and what stays in its memory"
ONLY_WORKING = {
    "test_text_is_streamed_to_whoever_looks": _PIECES,
    "test_the_pieces_of_a_reply_come_while_it_is_said_and_are_void_when_it_fails": _PIECES,
    "test_nobody_hears_a_summary_being_written": _PIECES,
    "test_a_thread_is_closed_without_waiting_for_the_model": _INTERRUPTING,
    "test_nor_for_one_that_was_about_to_be_asked": _INTERRUPTING,
    "test_a_completion_that_is_interrupted_is_not_charged_to_the_thread": _INTERRUPTING,
    "test_thousands_of_threads_are_at_work_at_once": _ONE_WORKER,
    "test_nothing_of_a_thread_stays_in_the_process": _ONE_WORKER,
}
"""Tests that make no sense for an agent that hibernates, and why."""

_AGENTS = {"working", "Agent", "agent"}
"""What a test names in which an agent works."""

_STAGED = "testing"
"""What a test names whose agent is on a stage: no clock but the test's, no socket, and always somebody at work."""


def ways(metafunc: pytest.Metafunc) -> list[AgentRun]:
    """How agents live in a test."""
    function = metafunc.function
    named = {*metafunc.fixturenames, *function.__code__.co_names}
    if function.__module__ not in SCENARIOS or function.__name__ in ONLY_WORKING:
        return [AgentRun.WORKING]
    if _STAGED in named or not named & _AGENTS:
        return [AgentRun.WORKING]
    return list(AgentRun)


_lived: list[AgentRun] = [AgentRun.WORKING]


def hibernates() -> bool:
    """Whether agents of the current test hibernate."""
    return _lived[-1] is AgentRun.HIBERNATING


@contextlib.contextmanager
def lived(life: AgentRun) -> Iterator[AgentRun]:
    """All agents live this way as long as the context lasts."""
    _lived.append(life)
    try:
        with pytest.MonkeyPatch.context() as patch:
            if life is AgentRun.HIBERNATING:
                # Nobody in the process is told what happens, so all look more often than they would.
                patch.setattr("rapkit.runtime.event_feed._LOOK_AGAIN_AFTER", _OFTEN)
                patch.setattr("rapkit.runtime.due_timer._LOOK_EVERY", _OFTEN)
                # Clocks stand still in some tests, and patience would never end.
                patch.setattr("rapkit.runtime.due_timer._PATIENCE", 0.0)
                patch.setattr("rapkit.runtime.worker._LOOK_AGAIN_AFTER", _OFTEN)
                patch.setattr(Agent, "__init__", _without_worker(Agent.__init__))
            yield life
    finally:
        _lived.pop()


def waking(config: AgentConfig, environment: AgentEnvironment | None) -> OnAccept:
    """A bell at which the agent is woken: by a second one, that is gone when nothing is due."""

    async def trigger(_thread_id: str) -> None:
        async with open_engine(config, environment) as second:
            await second.wake()

    return trigger


def _without_worker(make: Callable[..., None]) -> Callable[..., None]:
    """An agent in a program of one's own hibernates by itself: its toolsets, and what it has in memory, are nobody else's."""

    def made(self: Agent, **options: Any) -> None:
        async def trigger(_thread_id: str) -> None:
            await self.wake()

        make(self, **{"worker": False, "on_accept": trigger, **options})

    return made
