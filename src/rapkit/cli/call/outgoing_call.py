"""A call made from the command line: send it, read its callbacks, cancel it."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from rapkit.cli.credentials import Credentials
from rapkit.cli.tool_server_client import explain, post
from rapkit.errors import DeliveryError
from rapkit.protocol import Callback, SubscriptionEvent, ToolResult, UserChoice

_CANCELLING = "/cancel_tool_call"
_PATIENCE = 5.0  # for a notice, while the user waits for the end of the command
_ACCEPTED = 200
_NEEDS_A_TOKEN = (401, 403)
_REFUSALS = range(400, 500)


class OutgoingCall:
    """One call to the server at `base_url`.

    `was_refused`: the server said that it will not do it. `is_subscription` and `has_ended` are as far as was `heard`.
    """

    def __init__(
        self, base_url: str, endpoint: str, invocation: Mapping[str, object], credentials: Credentials
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._endpoint = endpoint
        self._invocation = invocation
        self._credentials = credentials
        self.id = str(invocation["id"])
        self.was_refused = self.is_subscription = self.has_ended = False

    def send(self, callback_url: str) -> None:
        """Make it; what comes of it goes to the URL. `DeliveryError` if it was refused, or perhaps never came there."""
        status, text = post(self._endpoint, {**self._invocation, "callback_url": callback_url}, self._credentials)
        if status != _ACCEPTED:
            self.was_refused = status in _REFUSALS  # all else leaves it open whether it was taken
            raise DeliveryError(f"{self._endpoint} {explain(status, text)}{self._hint(status)}")

    def heard(self, message: Callback) -> bool:
        """Note what has come of it; whether nothing more will."""
        match message:
            case ToolResult():
                self.is_subscription = message.subscription
                self.has_ended = not message.subscription
            case SubscriptionEvent() if message.final:
                self.has_ended = True
        return self.has_ended

    def may_answer(self, question: UserChoice) -> bool:
        """Whether the answer goes to the server that was called: no other server may make the command send requests or credentials."""
        return _origin(question.response_url) in (_origin(self._base_url), _origin(self._endpoint))

    def answer(self, question: UserChoice, selected: int) -> tuple[str | None, bool]:
        """Send a choice, counted from 0, to where the question wants it (CHO-1): what went wrong if anything did, and if that is final."""
        try:
            status, text = post(question.response_url, {"id": question.id, "selected": selected}, self._credentials)
        except DeliveryError:  # which names the URL, and that is as good as a key
            return f"{_origin(question.response_url)} cannot be reached.", False
        if status == _ACCEPTED:
            return None, True
        return f"{_origin(question.response_url)} {explain(status, text)}{self._hint(status)}", status in _REFUSALS

    def _hint(self, status: int) -> str:
        return f" {self._credentials.advice_when_refused}" if status in _NEEDS_A_TOKEN else ""

    def cancel(self) -> str | None:
        """Tell the server, once, that the call is cancelled (CAN-1); returns what went wrong, if anything."""
        url = self._base_url + _CANCELLING
        notice = {"thread_id": self._invocation["group_id"], "tool_call_id": self.id}
        try:
            status, text = post(url, notice, self._credentials, patience=_PATIENCE)
        except DeliveryError as error:
            return str(error)
        return None if status == _ACCEPTED else f"{url} {explain(status, text)}"


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
