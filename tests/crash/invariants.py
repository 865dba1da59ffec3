"""Everything that must not have happened, in words. `test_account.py` and its neighbours show what is caught."""

from collections import Counter

from tests.crash.calls import account_calls
from tests.crash.consents import account_consents
from tests.crash.dialogues import account_dialogues
from tests.crash.history import GIVEN_UP, UNKNOWN, History
from tests.crash.messages import account_messages
from tests.crash.streams import account_streams


def account(history: History, *, one_worker: bool = True) -> list[str]:
    """All complaints. `one_worker` if all deaths are known and no process stood still for long."""
    return [
        *account_messages(history, one_worker=one_worker),
        *account_calls(history, one_worker=one_worker),
        *account_streams(history),
        *account_dialogues(history),
        *account_consents(history),
    ]


def summary(history: History) -> str:
    """How much was tried, in a line."""
    acknowledged = sum(sent.acknowledged for sent in history.sent)
    messages = {delivery.id: delivery for delivery in history.deliveries}.values()
    results = [message.text for message in messages if message.type == "tool_result"]
    types = Counter(message.type for message in messages)
    answers = Counter(delivery.answer for delivery in history.deliveries)
    told = {
        "results": len(results),
        "'not known'": sum(UNKNOWN in text for text in results),
        "given up": sum(GIVEN_UP in text for text in results),
        "runs": sum(effect.what == "start" for effect in history.effects),
        "subscriptions": len(history.streams),
        "of them cancelled": sum(stream.silent_from is not None for stream in history.streams),
        "events": types["subscription_event"],
        "emitted": len(history.emissions),
        "questions": types["user_choice"],
        "answers": len(history.answers),
        "redirects": len(history.consents),
        "codes lost": sum(len(consent.exchanged) > 1 for consent in history.consents),
        "retransmissions": len(history.deliveries) - len(messages),
    }
    counts = ", ".join(f"{count} {what}" for what, count in told.items() if count)
    deaths = dict(Counter(death.who for death in history.deaths))
    return f"{len(history.sent)} sent, {acknowledged} acknowledged, {counts} (sink: {dict(answers)}), deaths: {deaths}"
