"""Handle the model's reply: make its calls, or handle its failure."""

import json
from dataclasses import replace

from rapkit.call_ids import call_id
from rapkit.kernel.builtins import BUILTINS, Builtin, BuiltinRefused, offered_builtins, too_many_calls
from rapkit.kernel.catalog import Catalog, OfferedTool
from rapkit.kernel.child_threads import report
from rapkit.kernel.completion import Reply, Usage, WantedCall
from rapkit.kernel.effects import Invoke, Step
from rapkit.kernel.entries import Answered, Failed, MadeCall, ModelSaid, ParkedEntry
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.receive import close, close_if_done
from rapkit.kernel.step_builder import StepBuilder
from rapkit.kernel.thread import OpenChoice, Pending, Thread
from rapkit.kernel.user_requests import NO, YES, YES_ALWAYS, ask_user
from rapkit.protocol import ArgumentChecker
from rapkit.protocol.expected_time import longest_expected

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 60.0
_LONGEST_PAUSE_OF_AN_EVENT = 15 * 60.0
_LONGEST_PAUSE_ASKED_FOR = 3600.0
_LONGEST_ARGUMENTS = 4000


def reply(thread: Thread, said: Reply, catalog: Catalog, now: float, limits: ThreadLimits, *, id_suffix: str) -> Step:
    """The model's reply: all its calls are made, at once; what cannot be made is answered here, and never leaves (INV-2, INV-3).

    `id_suffix` ends the ids of its calls; no other thread may be given the same.
    """
    draft = StepBuilder(thread, now, limits)
    first = thread.calls_made + 1
    made = [
        MadeCall(call_id(number, id_suffix), call.name, call.arguments or {}, call.provider_id, _display(call, catalog))
        for number, call in enumerate(said.calls, first)
    ]
    draft.change(
        wants_model=False,
        retry_at=0.0,
        failures=0,
        parked=None,
        told_of_stop=False,
        requests=thread.requests + 1,
        calls_made=thread.calls_made + len(made),
        usage=thread.usage + said.usage,
        context=said.usage.input_tokens + said.usage.output_tokens,
    )
    draft.journal(ModelSaid(said.text, tuple(made), said.thoughts, said.model, said.usage))
    wrong = 0
    for call, want in zip(made, said.calls, strict=True):
        wrong += not _make(draft, call, want, catalog)
    if wrong:
        draft.interrupt_sleep()  # it is to hear of that at once
    if made:
        _go_on(draft, all_wrong=wrong == len(made))
    else:
        draft.change(mistakes=0)
        _report_if_owed(draft, said.text)
    if draft.closing is not None:
        close(draft, draft.closing.by, draft.closing.report)
    close_if_done(draft)
    return draft.step()


def _display(call: WantedCall, catalog: Catalog) -> str | None:
    offer = catalog.offers.get(call.name)
    return None if offer is None or call.arguments is None else offer.display(call.arguments)


def _report_if_owed(draft: StepBuilder, text: str) -> None:
    """A child that comes to rest without a word to its parent would be waited for in vain: what it said last is its report."""
    if draft.thread.owes_report and not draft.thread.waits:
        report(draft, text if text.strip() else "(It ended its turn and said nothing.)")


def _make(draft: StepBuilder, call: MadeCall, wanted: WantedCall, catalog: Catalog) -> bool:
    """Make one call; False if it was wrong, and the model has been told so."""
    builtin = BUILTINS.get(call.name)
    offer = catalog.offers.get(call.name)
    if builtin is not None:
        return _run(draft, call, wanted, builtin)
    if offer is None:
        return _refuse(draft, call, f"There is no tool {call.name!r}. There are: {_names(draft, catalog)}.")
    if problem := _problem(wanted, offer.checker):
        return _refuse(draft, call, problem)
    if problem := too_many_calls(draft) or _too_many(draft, offer):
        return _refuse(draft, call, problem)
    annotations = offer.definition.annotations
    expected = longest_expected(annotations.__pydantic_extra__ if annotations else None)
    pending = Pending(
        call.name,
        call.arguments,
        offer.server,
        offer.definition.name,
        draft.now,
        provider_id=call.provider_id,
        timeout=draft.limits.timeouts.of(
            call.name,
            long_running=bool(annotations and annotations.longRunning),
            expected=expected,
        ),
        since=draft.now,
        display=call.display,
        expected=expected,
    )
    if choices := _asked_first(draft, call.name, destructive=bool(annotations and annotations.destructive)):
        _ask_permission(draft, call, pending, choices)
        return True
    draft.add_pending(call.id, pending)
    draft.do(Invoke(call.id))
    return True


def _names(draft: StepBuilder, catalog: Catalog) -> str:
    return catalog.names(offered_builtins(draft.thread, draft.limits))


def _asked_first(draft: StepBuilder, name: str, *, destructive: bool) -> tuple[str, ...]:
    """What the user is asked to choose from before a call is made; nothing if it is made at once (DIS-11)."""
    match draft.limits.confirmations.of(name, destructive=destructive):
        case "always":
            return (YES, NO)
        case "remembered" if name not in draft.thread.allowed:
            return (YES, YES_ALWAYS, NO)
    return ()


def _ask_permission(draft: StepBuilder, call: MadeCall, pending: Pending, choices: tuple[str, ...]) -> None:
    arguments = _visible(json.dumps(call.arguments, ensure_ascii=False))
    if len(arguments) > _LONGEST_ARGUMENTS:
        arguments = f"{arguments[:_LONGEST_ARGUMENTS]}… (and {len(arguments) - _LONGEST_ARGUMENTS} characters more)"
    draft.add_pending(call.id, replace(pending, awaits="permission"))
    prompt = f"May the agent call {call.name} with {arguments}?"
    ask_user(draft, call.id, OpenChoice(prompt, choices, choices.index(NO), "", "", draft.now))


def _visible(text: str) -> str:
    """A text with nothing in it that could hide what else stands there, such as what turns the direction of writing round."""
    return "".join(each if each.isprintable() else f"\\u{ord(each):04x}" for each in text)


def _run(draft: StepBuilder, call: MadeCall, wanted: WantedCall, builtin: Builtin) -> bool:
    """Do what a built-in tool does, now."""
    if problem := _problem(wanted, builtin.checker):
        return _refuse(draft, call, problem)
    try:
        text = builtin.run(draft, call)
    except BuiltinRefused as refused:
        return _refuse(draft, call, str(refused))
    if text is not None:
        draft.journal(Answered(call.id, call.name, text, by="runtime"))
    return True


def _problem(wanted: WantedCall, checker: ArgumentChecker) -> str | None:
    if wanted.arguments is None:
        return wanted.problem or "The arguments are not a JSON object."
    if problems := checker.problems(wanted.arguments):
        return "The arguments do not fit: " + "; ".join(problems)
    return None


def _too_many(draft: StepBuilder, offer: OfferedTool) -> str | None:
    """Whether the call would be one subscription too many, as far as can be known before it is made (SUB-17)."""
    subscriptions = draft.thread.subscriptions
    known = any(each.name == offer.name for each in subscriptions.values())
    if not known or len(subscriptions) < draft.limits.subscriptions:
        return None
    return (
        f"This thread has {len(subscriptions)} active subscriptions, and may not have more. "
        "Cancel one with cancel_subscription first."
    )


def _refuse(draft: StepBuilder, call: MadeCall, problem: str) -> bool:
    draft.journal(Answered(call.id, call.name, f"Error: {problem}", by="runtime"))
    return False


def _go_on(draft: StepBuilder, *, all_wrong: bool) -> None:
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
    draft = StepBuilder(thread, now, limits)
    failures = thread.failures + 1
    # Its usage is unknown; that it was asked counts.
    draft.change(failures=failures, usage=thread.usage + Usage(requests=1))
    if _is_told(thread, failures, limits):
        draft.journal(Failed(problem))
    if not thread.for_event and (not retryable or failures >= limits.attempts):
        _park(draft, f"The model failed: {problem.rstrip('.')}. Write to the thread to try again.")
        return draft.step()
    longest = _LONGEST_PAUSE_OF_AN_EVENT if thread.for_event else _LONGEST_PAUSE
    pause = min(_FIRST_PAUSE * 2 ** min(failures - 1, 10), longest)
    draft.change(parked=None, retry_at=now + max(pause, min(retry_after or 0.0, _LONGEST_PAUSE_ASKED_FOR)))
    return draft.step()


def _is_told(thread: Thread, failures: int, limits: ThreadLimits) -> bool:
    """Whether the journal tells of a failure: of those without end only each time they are twice as many, so that it has an end."""
    return not thread.for_event or failures <= limits.attempts or failures.bit_count() == 1


def worker_lost(thread: Thread, attempts: int, now: float, limits: ThreadLimits) -> Step:
    """Asking the model has ended the process that did it, again and again: the thread stops, before it ends more of them."""
    draft = StepBuilder(thread, now, limits)
    _give_up(
        draft,
        f"Asking the model failed {attempts} times: the process was lost or stopped meanwhile, or made a mistake that its log tells of.",
        "Write to the thread to try again.",
    )
    return draft.step()


def out_of_budget(thread: Thread, reason: str, until: float | None, now: float, limits: ThreadLimits) -> Step:
    """The model is not asked, because that would exceed a budget. It is asked at `until`, or when more is granted."""
    draft = StepBuilder(thread, now, limits)
    if not thread.for_event:
        _park(draft, reason, until or 0.0, keep_asking=True)
    elif until is not None:
        draft.change(retry_at=until)
        draft.journal(Failed(reason))
    else:
        close(draft, f"the thread itself, which was made for one event. {reason}")
    return draft.step()


def _give_up(draft: StepBuilder, reason: str, way_out: str) -> None:
    """Stop until a person resumes the thread. A thread that was made for an event is closed instead, because no person follows it."""
    if draft.thread.for_event:
        close(draft, f"the thread itself, which was made for one event. {reason}")
    else:
        _park(draft, f"{reason} {way_out}")


def _park(draft: StepBuilder, reason: str, retry_at: float = 0.0, *, keep_asking: bool = False) -> None:
    """Stop until a client resumes the thread; with `keep_asking` it knows that the model is still to be asked.

    The user is told, and a parent that would wait in vain for what comes next: once, however often the thread is woken in vain.
    """
    told = draft.thread.told_of_stop
    draft.change(parked=reason, wants_model=keep_asking, retry_at=retry_at, told_of_stop=True)
    if not told:
        draft.journal(ParkedEntry(reason))
        if draft.thread.task:
            report(draft, f"It has stopped: {reason}", still_owes=True)
