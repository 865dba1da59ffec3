"""What holds for calls that need the user's consent elsewhere.

Of a user who agrees, a call ends as it should, with one exception that no order of steps can avoid: the provider gave a token for the code
and the server died before it had written it down. A code works once, so the user has to be asked anew, and the result says so.
"""

from collections.abc import Iterator
from itertools import pairwise

from tests.crash.history import Consent, Delivery, History, Sent

CONSENTING = frozenset({"act", "act_again"})
_REPEATABLE = frozenset({"act_again"})
_DECLINED = "Error: idp: the user declined."
_LOST = "Error: idp: the provider did not accept the user's authorisation. Call again to ask them anew."


def declines(user: str) -> bool:
    """Whether a user never agrees; all others always do."""
    return int(user.removeprefix("user_")) % 5 == 4


def account_consents(history: History) -> Iterator[str]:
    consents: dict[int, list[Consent]] = {}
    for consent in history.consents:
        consents.setdefault(consent.n, []).append(consent)
    for sent in history.sent:
        if sent.call.tool in CONSENTING:
            yield from _answered(history, sent, consents.get(sent.call.n, []))
            if sent.call.tool not in _REPEATABLE and history.traces[sent.call.n, "resumed"] > 1:
                yield f"{sent.call.name} was authorised and did its work {history.traces[sent.call.n, 'resumed']} times"
    for consent in history.consents:
        yield from _exchanged(history, consent)


def _answered(history: History, sent: Sent, consents: list[Consent]) -> Iterator[str]:
    call = sent.call
    assert call.user_id is not None
    for result in history.results(call):
        if result.text == f"{call.tool} {call.n} {call.user_id}":
            if declines(call.user_id):
                yield f"{call.name} was done for {call.user_id}, who never agreed"
            if not history.traces[call.n, "end"]:
                yield f"{call.name} was answered {result.text!r}, and its handler never came to the end"
        elif result.text == _DECLINED:
            if not declines(call.user_id) or not any(consent.at < result.at for consent in consents):
                yield f"{call.name} was answered {result.text!r}, and {call.user_id} had agreed, or was not asked"
        elif not _may_fail(history, sent, result, consents):
            yield f"{call.name} was answered {result.text!r}"


def _may_fail(history: History, sent: Sent, result: Delivery, consents: list[Consent]) -> bool:
    call = sent.call
    if result.text == _LOST:
        return any(len(consent.exchanged) > 1 for consent in consents)
    unknown = call.tool not in _REPEATABLE and history.may_be_unknown(sent.at, result)
    return unknown or history.may_be_given_up(sent.at, result)


def _exchanged(history: History, consent: Consent) -> Iterator[str]:
    """A code is presented once, and again only if the server died while it was at it (OAU-2)."""
    for before, after in pairwise(consent.exchanged):
        if not history.deaths_between(before, after, "server"):
            yield f"the code for call {consent.n} was presented twice, though no server had died"
        elif consent.used is not None and consent.used < after:
            yield f"the code for call {consent.n} was presented again, though there was a token for it, which that revokes"
    if consent.page not in (200, 410):
        yield f"the user of call {consent.n} came back and was never shown how it ended, but {consent.page}"
