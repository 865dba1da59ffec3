"""What a thread does with what the model said, or with its failure to say anything."""

from rapkit.kernel.builtins import BUILTINS, Builtin, Refused
from rapkit.kernel.catalog import Catalog, Offer
from rapkit.kernel.completion import Reply, WantedCall
from rapkit.kernel.draft import Draft
from rapkit.kernel.effects import Invoke, Step
from rapkit.kernel.entries import Answered, Failed, MadeCall, ModelSaid, ParkedEntry
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.receiving import close, close_if_done
from rapkit.kernel.thread import Pending, Thread
from rapkit.protocol import ArgumentChecker

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_LONGEST_PAUSE_OF_AN_EVENT = 15 * 60.0
_LONGEST_PAUSE_ASKED_FOR = 3600.0


def reply(thread: Thread, said: Reply, catalog: Catalog, now: float, limits: ThreadLimits) -> Step:
    """The model's reply: all its calls are made, at once; what cannot be made is answered here, and never leaves (INV-2, INV-3)."""
    draft = Draft(thread, now, limits)
    first = thread.calls_made + 1
    made = [
        MadeCall(f"call_{number}", call.name, call.arguments or {}, call.provider_id)
        for number, call in enumerate(said.calls, first)
    ]
    draft.change(
        wants_model=False,
        retry_at=0.0,
        failures=0,
        parked=None,
        calls_made=thread.calls_made + len(made),
        usage=thread.usage + said.usage,
    )
    draft.journal(ModelSaid(said.text, tuple(made), said.thoughts, said.model, said.usage))
    wrong = 0
    for call, want in zip(made, said.calls, strict=True):
        wrong += not _make(draft, call, want, catalog)
    if made:
        _go_on(draft, all_wrong=wrong == len(made))
    else:
        draft.change(mistakes=0)
    close_if_done(draft)
    return draft.step()


def _make(draft: Draft, call: MadeCall, wanted: WantedCall, catalog: Catalog) -> bool:
    """Make one call; False if it was wrong, and the model has been told so."""
    builtin = BUILTINS.get(call.name)
    offer = catalog.offers.get(call.name)
    if builtin is not None:
        return _run(draft, call, wanted, builtin)
    if offer is None:
        return _refuse(draft, call, f"There is no tool {call.name!r}. There are: {catalog.names()}.")
    if problem := _problem(wanted, offer.checker):
        return _refuse(draft, call, problem)
    if problem := _too_many(draft, offer):
        return _refuse(draft, call, problem)
    pending = Pending(
        call.name, call.arguments, offer.server, offer.definition.name, draft.now, provider_id=call.provider_id
    )
    draft.change(pending={**draft.thread.pending, call.id: pending})
    draft.do(Invoke(call.id))
    return True


def _run(draft: Draft, call: MadeCall, wanted: WantedCall, builtin: Builtin) -> bool:
    """Do what a built-in tool does, now."""
    if problem := _problem(wanted, ArgumentChecker(builtin.tool.input_schema)):
        return _refuse(draft, call, problem)
    try:
        text = builtin.run(draft, call.arguments)
    except Refused as refused:
        return _refuse(draft, call, str(refused))
    draft.journal(Answered(call.id, call.name, text, by="runtime"))
    return True


def _problem(wanted: WantedCall, checker: ArgumentChecker) -> str | None:
    if wanted.arguments is None:
        return wanted.problem or "The arguments are not a JSON object."
    if problems := checker.problems(wanted.arguments):
        return "The arguments do not fit: " + "; ".join(problems)
    return None


def _too_many(draft: Draft, offer: Offer) -> str | None:
    """Whether the call would be one subscription too many, as far as can be known before it is made (SUB-17)."""
    subscriptions = draft.thread.subscriptions
    known = any(each.name == offer.name for each in subscriptions.values())
    if not known or len(subscriptions) < draft.limits.subscriptions:
        return None
    return (
        f"This thread has {len(subscriptions)} active subscriptions, and may not have more. "
        "Cancel one with cancel_subscription first."
    )


def _refuse(draft: Draft, call: MadeCall, problem: str) -> bool:
    draft.journal(Answered(call.id, call.name, f"Error: {problem}", by="runtime"))
    return False


def _go_on(draft: Draft, *, all_wrong: bool) -> None:
    """Ask the model again if every call is answered, unless it gets nothing right any more."""
    mistakes = draft.thread.mistakes + 1 if all_wrong else 0
    draft.change(mistakes=mistakes)
    if mistakes >= draft.limits.mistakes:
        _give_up(draft, f"The model made {mistakes} wrong calls in a row.", "Write to it to go on.")
    elif draft.thread.is_free:
        draft.change(wants_model=True)


def model_failed(
    thread: Thread,
    problem: str,
    now: float,
    limits: ThreadLimits,
    *,
    retryable: bool = True,
    retry_after: float | None = None,
) -> Step:
    """The model did not answer: the error is shown, and it is asked again after a while, so often; then the thread is parked (RUN-4).

    A thread that was made for an event asks for ever, less and less often: no person looks at it who could revive it, and while it is
    there its parent has less room for later events.
    """
    draft = Draft(thread, now, limits)
    failures = thread.failures + 1
    draft.change(failures=failures)
    if _is_told(thread, failures, limits):
        draft.journal(Failed(problem))
    if not thread.for_event and (not retryable or failures >= limits.attempts):
        _park(draft, f"The model failed: {problem.rstrip('.')}. Write to the thread to try again.")
        return draft.step()
    longest = _LONGEST_PAUSE_OF_AN_EVENT if thread.for_event else _LONGEST_PAUSE
    pause = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), longest)
    draft.change(retry_at=now + max(pause, min(retry_after or 0.0, _LONGEST_PAUSE_ASKED_FOR)))
    return draft.step()


def _is_told(thread: Thread, failures: int, limits: ThreadLimits) -> bool:
    """Whether the journal tells of a failure: of those without end only each time they are twice as many, so that it has an end."""
    return not thread.for_event or failures <= limits.attempts or failures.bit_count() == 1


def worker_lost(thread: Thread, attempts: int, now: float, limits: ThreadLimits) -> Step:
    """Asking the model has ended the process that did it, again and again: the thread stops, before it ends more of them."""
    draft = Draft(thread, now, limits)
    _give_up(
        draft,
        f"Asking the model failed {attempts} times: the process was lost, or made a mistake that its log tells of.",
        "Write to the thread to try again.",
    )
    return draft.step()


def _give_up(draft: Draft, reason: str, way_out: str) -> None:
    """Stop, until a person goes on with it; nobody would with a thread that was made for an event, so that one is closed."""
    if draft.thread.for_event:
        close(draft, f"the thread itself, which was made for one event. {reason}")
    else:
        _park(draft, f"{reason} {way_out}")


def _park(draft: Draft, reason: str) -> None:
    draft.change(parked=reason, wants_model=False)
    draft.journal(ParkedEntry(reason))
