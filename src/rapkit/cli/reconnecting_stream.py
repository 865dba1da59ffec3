"""Follow a thread's events, reconnecting through restarts of its agent."""

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rapkit.cli.agent_api import AgentApi, AgentUnreachable, EventStreamReader, StreamEvent

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 2.0


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The agent is away; it is tried again and again."""

    problem: str


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The agent is there again. What happened meanwhile comes next."""


class ReconnectingStream:
    """Everything that happens in a thread after the event `after`, in order and once, whatever becomes of connections and of the agent.

    Iterating blocks. It ends when the thread is closed and all of it was read, or when `close` is called, which any thread may do; with
    `TimeoutError` at `ends_at`, a time of `time.monotonic`. `AgentRefused` if the agent does not let us. `after` is where it got to.
    """

    def __init__(
        self, api: AgentApi, thread_id: str, after: str | None = None, *, ends_at: float | None = None
    ) -> None:
        self._api = api
        self._thread_id = thread_id
        self._ends_at = ends_at
        self._closed = threading.Event()
        self._stream: EventStreamReader | None = None
        self.after = after

    def __iter__(self) -> Iterator[StreamEvent | ConnectionLost | Reconnected]:
        """What happens, and whether the agent is away."""
        alarm = self._alarm()
        failures = 0
        try:
            while not self._closed.is_set():
                self._stream = self._api.stream(self._thread_id, self.after)
                try:
                    for event in self._stream:
                        if failures:
                            failures = 0
                            yield Reconnected()
                        self.after = event.id or self.after
                        yield event
                    self._closed.wait(_FIRST_PAUSE)  # an agent that is stopping ends streams as soon as they begin
                except EOFError:
                    return
                except AgentUnreachable as error:
                    if self._closed.is_set():
                        break
                    failures += 1
                    if failures == 1:
                        yield ConnectionLost(str(error))
                    # Bounded before it is raised: an agent may be away for days, and a float has an end.
                    self._closed.wait(min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), _LONGEST_PAUSE))
            if self._ends_at is not None and time.monotonic() >= self._ends_at:
                raise TimeoutError
        finally:
            if alarm is not None:
                alarm.cancel()

    def close(self) -> None:
        """End it."""
        self._closed.set()
        if self._stream is not None:
            self._stream.close()

    def _alarm(self) -> threading.Timer | None:
        if self._ends_at is None:
            return None
        seconds = max(0.0, self._ends_at - time.monotonic())
        alarm = threading.Timer(
            min(seconds, threading.TIMEOUT_MAX), self.close
        )  # that is centuries, and all a timer can do
        alarm.daemon = True
        alarm.start()
        return alarm
