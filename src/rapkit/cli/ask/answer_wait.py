"""Wait for the answer to one message, through restarts of the agent."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from rapkit.cli.agent_api import AgentApi, AgentTimeout, AgentUnreachable, StreamEvent
from rapkit.cli.command_hints import CommandHints
from rapkit.cli.reconnecting_stream import ConnectionLost, Reconnected, ReconnectingStream
from rapkit.cli.threads.thread_lookup import path_of
from rapkit.cli.threads.timeline import call_text
from rapkit.cli.threads.undelivered_choice import is_undelivered, what_to_do

Word = Literal["answered", "stopped", "asks", "late", "sent"]
_USAGE = ("requests", "input_tokens", "output_tokens", "cost")


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """What became of a message. `text` and `seq` are the answer's; `problem` is why there is none."""

    word: Word
    text: str | None = None
    seq: int | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class WaitStart:
    """From where an answer is waited for: `after` is an event of the thread.

    It is the answer to the message with this id that is waited for, or else to the first one after that event. `heard`: to none in
    particular, for something is under way already; then it is the next answer after that event.
    """

    after: str | None = None
    message_id: str | None = None
    heard: bool = False


class AnswerWait:
    """Waits for an answer: the first reply without calls after its `beginning`.

    `message_id` is known when the message was heard. `usage` is what the model took for it so far. Unless we are `waits_for_user` with
    people, a question to them ends it, if the model waits for the answer to that. `tell` is told that the agent is away, and what hinders
    the thread; `show` what goes on meanwhile.
    """

    def __init__(
        self,
        api: AgentApi,
        thread_id: str,
        beginning: WaitStart,
        *,
        said: CommandHints,
        ends_at: float | None,
        waits_for_user: bool,
        tell: Callable[[str], None],
        show: Callable[[str], None],
    ) -> None:
        self._api = api
        self._thread_id = thread_id
        self._following = ReconnectingStream(api, thread_id, beginning.after, ends_at=ends_at)
        self._said = said
        self._waits_for_user = waits_for_user
        self._tell = tell
        self._show = show
        self._heard = beginning.heard
        self._aside: str | None = None
        self._undelivered: str | None = None
        self._perhaps_answered = False
        self._seq = 0
        self.message_id = beginning.message_id
        self.usage: dict[str, float] = dict.fromkeys(_USAGE, 0)

    def wait(self) -> AnswerOutcome:
        """Wait until there is an answer or will be none, the user is asked a question, or the time is over."""
        try:
            for event in self._following:
                outcome = self._heed(event)
                if outcome is not None:
                    return outcome
        except (TimeoutError, AgentTimeout):
            return AnswerOutcome("late")
        return AnswerOutcome("stopped", problem="It was closed before it answered.")

    def _heed(self, event: StreamEvent | ConnectionLost | Reconnected) -> AnswerOutcome | None:
        match event:
            case ConnectionLost(problem):
                self._tell(f"{problem} Waiting for it.")
            case Reconnected():
                self._tell("The agent is back.")
            case StreamEvent(kind="entry", data=entry):
                self._seq = entry["seq"]
                outcome = self._entry(entry)
                return self._rest() if outcome is None and self._perhaps_answered else outcome
            case StreamEvent(kind="status" | "choice" | "oauth"):
                return self._rest()
        return None

    def _entry(self, entry: Any) -> AnswerOutcome | None:
        match entry:
            case {"kind": "user", "id": id} if not self._heard and self.message_id in (None, id):
                self._heard, self.message_id = True, id
            case {"kind": "ignored", "what": "user", "reason": reason}:
                self._aside = reason
                return self._rest()
            case {"kind": "error", "text": text} if is_undelivered(entry):
                self._undelivered = text
                return self._rest()
            case {"kind": "closed"}:
                return AnswerOutcome("stopped", problem="It was closed before it answered.")
            case {"kind": "parked", "reason": reason} if self._heard:
                return AnswerOutcome("stopped", problem=f"It stopped: {reason}")
            case {"kind": "assistant" | "summary", "usage": usage} if self._heard:
                self.usage = {key: self.usage[key] + usage.get(key, 0) for key in _USAGE}
                if entry["kind"] == "assistant" and not entry["calls"]:
                    return AnswerOutcome("answered", entry["text"], entry["seq"])
                for call in entry.get("calls", ()):
                    self._show(f"… {call_text(call)}")
        return None

    def _rest(self) -> AnswerOutcome | None:
        """Whether nothing more will come by itself, now that the thread may have come to rest."""
        if not self._heard and self._aside is None:
            return None
        try:
            thread = self._api.get(path_of(self._thread_id))
        except AgentUnreachable:
            return None  # when it is back, its status is told again
        if not self._heard:
            # It may be another message that was set aside. If it was not ours, ours is heard before the thread comes to rest.
            if thread["status"] != "running" and self._seq >= thread["length"]:
                return AnswerOutcome("stopped", problem=f"The message was not taken: {self._aside}")
            return None
        waited_for = {each["call_id"] for each in thread["pending_calls"] if not each["still_running_shown"]}
        if self._undelivered is not None and waited_for:
            self._tell(f"{self._undelivered}. {what_to_do(self._undelivered, self._said)}")
            self._undelivered = None
        asking = {each["call_id"] for each in (*thread["choices"], *thread["oauth"])}
        # What it will read next may be the answer. Then that is what happens next, or something else does.
        self._perhaps_answered = thread["status"] == "running" and bool(asking)
        return (
            AnswerOutcome("asks")
            if asking & waited_for and not self._waits_for_user and not self._perhaps_answered
            else None
        )
