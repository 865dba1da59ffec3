"""The messages of one call, checked against the obligations of a tool server."""

from dataclasses import dataclass, field

from rapkit.protocol import Callback, OAuthRequest, SubscriptionEvent, ToolResult, UserChoice, ViewUpdate

_LONGEST_TEXT = 200


@dataclass(eq=False)
class CallMessages:
    """One call as its caller sees it. `released` is set when the caller has cancelled it or closed its thread."""

    operation: str
    id: str
    thread_id: str
    caller: str
    call_id: str | None = None
    messages: list[Callback] = field(default_factory=list)
    released: bool = False

    def __str__(self) -> str:
        """Which call it is."""
        return f"{self.operation!r} ({self.id} in {self.thread_id})"

    @property
    def result(self) -> ToolResult | None:
        """What the call was answered with."""
        return next((message for message in self.messages if isinstance(message, ToolResult)), None)

    @property
    def events(self) -> list[SubscriptionEvent]:
        """The events that came."""
        return [message for message in self.messages if isinstance(message, SubscriptionEvent)]

    @property
    def over(self) -> bool:
        """Whether nothing more may come."""
        if self.result is None:
            return False
        return not self.result.subscription or any(event.final for event in self.events)

    def objection(self, message: Callback) -> str | None:
        """Why this message must not have been sent, if it must not."""
        if message.group_id != self.thread_id or _call_of(message) not in (None, self.id):
            return "It has the ids of another call (CB-2)."
        if getattr(message, "call_id", self.call_id) != self.call_id:
            return "It does not echo the call_id of its call (CB-2)."
        if self.over and not isinstance(message, ViewUpdate):  # views have lanes of their own, and may come later
            return "Nothing may follow the end of a call or of a subscription (CB-5, SUB-4)."
        if self.released and not self._may_be_late(message):
            return "It was sent after the cancellation was acknowledged (SUB-5)."
        if isinstance(message, ToolResult) and self.result is not None:
            return "The call is answered already (CB-5)."
        if isinstance(message, SubscriptionEvent) and self.result is None:
            return "The subscription is not confirmed yet (SUB-2)."
        if isinstance(message, OAuthRequest | UserChoice) and self.result is not None:
            return "The call is answered, and nobody can be asked any more (CB-5)."
        return None

    def _may_be_late(self, message: Callback) -> bool:
        """Whether it may come after a cancellation: the call may have ended before that, and its result be on its way."""
        return isinstance(message, ToolResult) and not message.subscription

    def told(self) -> str:
        """What came so far, a line each."""
        return "\n".join(f"  {describe(message)}" for message in self.messages) or "  nothing"


def describe(message: Callback) -> str:
    """One line about a message."""
    match message:
        case ToolResult():
            text = "" if message.text is None else f" {_short(message.text)}"
            more = f" and {len(message.content)} items of content" if message.content else ""
            return f"{'confirmation' if message.subscription else 'result'}{text}{more}"
        case SubscriptionEvent():
            return f"{'final event' if message.final else 'event'} {_short(message.text)}"
        case UserChoice():
            return f"question {_short(message.prompt)} with the choices {', '.join(map(repr, message.choices))}"
        case OAuthRequest():
            return "request to authorise the server"
        case ViewUpdate():
            return f"view {message.view_type!r}: {_short(str(message.content))}"


def _short(text: str) -> str:
    return repr(text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…")


def _call_of(message: Callback) -> str | None:
    match message:
        case SubscriptionEvent():
            return message.tool_call_id
        case ViewUpdate():
            return None  # views belong to the thread
    return message.id
