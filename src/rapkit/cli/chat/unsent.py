"""Messages that the user has typed and the thread has not received yet."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.threads.thread_lookup import path_of


@dataclass(slots=True, eq=False)
class UnsentMessage:
    """Something said to a thread. It is sent with a key of its own, so that it arrives once, however often it is sent."""

    to: DisplayedThread
    text: str
    key: str = field(default_factory=secrets.token_urlsafe)
    id: str | None = None
    is_stored: bool = False
    begins_thread: bool = False

    def send(self, api: AgentApi, user_id: str | None) -> str | None:
        """Send it: to its thread, or as the first words of a new one, whose id is returned. Blocks; `AgentAway`, `AgentRefused`."""
        if self.to.id is None:
            body: dict[str, Any] = {"text": self.text} | ({"user_id": user_id} if user_id else {})
            self.begins_thread = True
            return str(api.post("threads", body, key=self.key)["thread_id"])
        self.id = api.post(path_of(self.to.id, "messages"), {"text": self.text}, key=self.key)["message_id"]
        return None


class Unsent:
    """Messages in the order in which they were said; each is gone once it stands in its thread's journal."""

    def __init__(self) -> None:
        self._messages: list[UnsentMessage] = []
        self._heard: set[str] = set()

    def add(self, message: UnsentMessage) -> None:
        """One more."""
        self._messages.append(message)

    def next(self) -> UnsentMessage | None:
        """The first that is not stored yet."""
        return next((message for message in self._messages if not message.is_stored), None)

    def stored(self, message: UnsentMessage) -> None:
        """It is safe with the agent now. The journal may have been faster than the answer that says so."""
        message.is_stored = True
        if message.id in self._heard:
            self.drop(message)

    def heard(self, to: DisplayedThread, entry: dict[str, Any]) -> None:
        """A `user` entry of that thread: whose it is need not be shown any more."""
        if entry.get("id"):
            self._heard.add(entry["id"])
        for message in self._messages:
            first_words = message.begins_thread and message.to is to and message.text == entry["text"]
            if first_words or (message.id is not None and message.id == entry.get("id")):
                self.drop(message)
                return

    def drop(self, message: UnsentMessage) -> None:
        """It does not count any more."""
        if message in self._messages:
            self._messages.remove(message)

    def drop_stored(self, to: DisplayedThread) -> None:
        """Drop those that are stored in a thread that is no longer displayed."""
        self._messages = [each for each in self._messages if each.to is not to or not each.is_stored]

    def of(self, to: DisplayedThread) -> Iterator[UnsentMessage]:
        """Those for a thread."""
        return (message for message in self._messages if message.to is to)

    @property
    def not_stored(self) -> list[UnsentMessage]:
        """Those that would be lost if we ended now."""
        return [message for message in self._messages if not message.is_stored]
