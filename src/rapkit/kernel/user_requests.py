"""Requests to the user (choices, questions, authorisations) and views. Meanwhile the call stays pending and the model is not asked."""

from dataclasses import replace

from rapkit.kernel.cancellation import cancel_pending
from rapkit.kernel.effects import ClearView, Invoke, SendChoice, ShowAuthorization, ShowView
from rapkit.kernel.entries import (
    AuthorizationAsked,
    AuthorizationExpired,
    ChoiceAsked,
    ChoiceMadeEntry,
    Failed,
    ViewChanged,
)
from rapkit.kernel.incoming import AnswerFor, AnswerUndelivered, ChooseFor
from rapkit.kernel.step_builder import StepBuilder, without
from rapkit.kernel.thread import OpenChoice
from rapkit.protocol import OAuthRequest, UserChoice, ViewUpdate

_NOT_LIVE = "no such call is pending, and no such subscription active"
_NO_QUESTION = "no question of this call is open"
_ANOTHER = "it is the answer to another question, which is over"
_MOST_QUESTIONS = 16
_LONGEST_PROMPT = 10_000
_MOST_CHOICES = 100
_LONGEST_CHOICE = 1000

YES, NO = "Yes", "No"
YES_ALWAYS = "Yes, and do not ask again in this conversation"

_DECLINED = "Error: The user was asked whether this call may be made, and declined. Do not try again unless the user asks for it."
_NOT_PERMITTED = "Error: The user was asked whether this call may be made, and did not answer in time. It was not made."
_DISMISSED = "The user dismissed the question and gave no answer."
_NOT_ANSWERED = "The user did not answer in time."


def receive_oauth(draft: StepBuilder, asked: OAuthRequest) -> None:
    """The user is shown where to authorise the tool (OAU-1)."""
    if not _is_live(draft, asked.id):
        draft.ignore("oauth", _NOT_LIVE, asked.id)
        return
    draft.change(authorizing={**draft.thread.authorizing, asked.id: draft.now})
    draft.journal(AuthorizationAsked(asked.id))
    draft.do(ShowAuthorization(asked.id, asked.auth_url))
    _begin_anew(draft, asked.id)


def receive_choice(draft: StepBuilder, asked: UserChoice) -> None:
    """The user is asked (CHO-1). Several questions of one call are asked one after the other."""
    if not _is_live(draft, asked.id):
        draft.ignore("user_choice", _NOT_LIVE, asked.id)
        return
    open_ones = draft.thread.choices.get(asked.id, ())
    if any(each.response_url == asked.response_url for each in open_ones):
        draft.ignore("user_choice", "it is being asked already", asked.id)
        return
    if len(open_ones) >= _MOST_QUESTIONS:
        draft.ignore("user_choice", "the call asks too many questions at once", asked.id)
        return
    if problem := _too_long(asked):
        refuse_question(draft, asked.id, problem)
        return
    call = draft.thread.pending.get(asked.id) or draft.thread.subscriptions[asked.id]
    choice = OpenChoice(asked.prompt, asked.choices, asked.default, asked.response_url, call.server, draft.now)
    ask_user(draft, asked.id, choice)


def _too_long(asked: UserChoice) -> str | None:
    """What of it is more than can be kept: an open question is part of the state, which is written at every step."""
    if len(asked.prompt) > _LONGEST_PROMPT:
        return f"its prompt has {len(asked.prompt)} characters; {_LONGEST_PROMPT} are possible"
    if len(asked.choices) > _MOST_CHOICES:
        return f"it has {len(asked.choices)} choices; {_MOST_CHOICES} are possible"
    longest = max((len(choice) for choice in asked.choices), default=0)
    if longest > _LONGEST_CHOICE:
        return f"one of its choices has {longest} characters; {_LONGEST_CHOICE} are possible"
    return None


def refuse_question(draft: StepBuilder, call_id: str, reason: str) -> None:
    """A call asked the user a question that cannot be answered: it is cancelled, because it would wait for ever. A subscription goes on."""
    draft.ignore("user_choice", reason, call_id)
    if draft.awaits_tool(call_id):
        call = cancel_pending(draft, call_id)
        draft.answer(call_id, call, f"Error: The tool asked the user a question, but it cannot be answered: {reason}")
        draft.wake()


def ask_user(draft: StepBuilder, call_id: str, choice: OpenChoice) -> None:
    """Put a question to the user, behind those the call has asked already."""
    open_ones = draft.thread.choices.get(call_id, ())
    draft.change(choices={**draft.thread.choices, call_id: (*open_ones, choice)})
    draft.journal(ChoiceAsked(call_id, choice.prompt, choice.choices, choice.default))
    draft.set_call_timer(call_id)


def receive_choice_made(draft: StepBuilder, made: ChooseFor) -> None:
    """The user's choice, or that the question is dismissed."""
    open_ones = draft.thread.choices.get(made.call_id, ())
    if not open_ones:
        draft.ignore("choice", _NO_QUESTION, made.call_id)
        return
    choice = open_ones[0]
    if _is_about_another(made, choice):
        draft.ignore("choice", _ANOTHER, made.call_id)
        return
    selected = made.selected
    if selected is not None and not 0 <= selected < len(choice.choices):
        draft.ignore("choice", f"there are choices 0 to {len(choice.choices) - 1}, not {selected}", made.call_id)
        return
    entry = ChoiceMadeEntry(made.call_id, selected, dismissed=selected is None)
    _take(draft, made.call_id, entry, made.problem)


def _is_about_another(made: ChooseFor | AnswerFor, choice: OpenChoice) -> bool:
    return made.asked_at is not None and made.asked_at != choice.asked_at


def receive_answer(draft: StepBuilder, answer: AnswerFor) -> None:
    """The user's answer, in words, to a question of the model's."""
    call = draft.thread.pending.get(answer.call_id)
    if answer.call_id not in draft.thread.choices:
        draft.ignore("answer", _NO_QUESTION, answer.call_id)
    elif call is None or call.awaits != "user":
        draft.ignore("answer", "this question is answered with one of its choices", answer.call_id)
    elif _is_about_another(answer, draft.thread.choices[answer.call_id][0]):
        draft.ignore("answer", _ANOTHER, answer.call_id)
    else:
        _take(draft, answer.call_id, ChoiceMadeEntry(answer.call_id, text=answer.text))


def receive_question_over(draft: StepBuilder, call_id: str) -> None:
    """The user has not answered in time: what was asked is dismissed, and where to authorise is shown no more.

    Whether the user has authorised the tool we do not know. So its call goes on, and has all its time again.
    """
    choices = draft.thread.choices.get(call_id)
    authorizing = draft.thread.authorizing.get(call_id)
    # Of both, what was asked first is over first.
    if choices and (authorizing is None or choices[0].asked_at < authorizing):
        _take(draft, call_id, ChoiceMadeEntry(call_id, dismissed=True, expired=True))
        return
    draft.journal(AuthorizationExpired(call_id))
    draft.take_back_authorization(call_id)
    _begin_anew(draft, call_id)


def _begin_anew(draft: StepBuilder, call_id: str) -> None:
    """A call whose tool has all its time again."""
    call = draft.thread.pending.get(call_id)
    if call is not None:
        draft.change(pending={**draft.thread.pending, call_id: replace(call, since=draft.now)})
    draft.set_call_timer(call_id)


def _take(draft: StepBuilder, call_id: str, made: ChoiceMadeEntry, problem: str | None = None) -> None:
    """Pass the outcome of a call's first question on to what asked it: a tool, the model, or the runtime."""
    choice, *others = draft.thread.choices[call_id]
    left = tuple(replace(other, asked_at=draft.now) if number == 0 else other for number, other in enumerate(others))
    choices = without(draft.thread.choices, call_id)
    draft.change(choices={**choices, call_id: left} if left else choices)
    if made.dismissed and choice.default is not None:
        made = replace(made, selected=choice.default)
    draft.journal(made)
    call = draft.thread.pending.get(call_id)
    if call is not None and call.awaits == "user":
        _answer_model(draft, call_id, choice, made)
        return
    if call is not None and call.awaits == "permission":
        _permit(draft, call_id, choice, made, problem)
        return
    assert made.selected is not None
    draft.do(SendChoice(call_id, choice.server, choice.response_url, made.selected))
    _begin_anew(draft, call_id)


def _answer_model(draft: StepBuilder, call_id: str, choice: OpenChoice, made: ChoiceMadeEntry) -> None:
    text = made.text
    if text is None:
        text = _NOT_ANSWERED if made.expired else _DISMISSED
        if made.selected is not None:
            text = choice.choices[made.selected]
    draft.answer(call_id, draft.take_pending(call_id), text)
    draft.wake()


def _permit(draft: StepBuilder, call_id: str, choice: OpenChoice, made: ChoiceMadeEntry, problem: str | None) -> None:
    """The call is made now, or never (DIS-11)."""
    call = draft.thread.pending[call_id]
    said = NO if made.selected is None else choice.choices[made.selected]
    if said == NO or problem is not None:
        text = _NOT_PERMITTED if made.expired else _DECLINED
        if said != NO:
            text = f"Error: The user permitted this call, but it cannot be made any more: {problem}"
        draft.answer(call_id, draft.take_pending(call_id), text)
        draft.wake()
        return
    if said == YES_ALWAYS and call.name not in draft.thread.allowed:
        draft.change(allowed=(*draft.thread.allowed, call.name))
    draft.add_pending(call_id, replace(call, awaits="tool", since=draft.now))
    draft.do(Invoke(call_id))


def receive_answer_undelivered(draft: StepBuilder, undelivered: AnswerUndelivered) -> None:
    """The user should know that the choice had no effect; the call is as pending as it was."""
    draft.journal(Failed(f"Your choice could not be delivered to the tool that asked: {undelivered.problem}"))


def receive_view(draft: StepBuilder, update: ViewUpdate) -> None:
    """The latest content of a view is shown, and replaces what was shown before (VIE-1); empty content clears the view (VIE-2)."""
    views = draft.thread.views
    if update.content is None or update.content in ("", [], {}):
        if update.view_type not in views:
            draft.ignore("view_update", "there is no such view to clear")
            return
        draft.change(views=tuple(view for view in views if view != update.view_type))
        draft.journal(ViewChanged(update.view_type, cleared=True))
        _show(draft, ClearView(update.view_type))
        return
    if update.view_type not in views:
        if len(views) >= draft.limits.views:
            draft.ignore("view_update", f"the thread has {len(views)} views, which is the limit")
            return
        draft.change(views=(*views, update.view_type))
    draft.journal(ViewChanged(update.view_type))
    _show(draft, ShowView(update.view_type, update.content))


def _show(draft: StepBuilder, effect: ShowView | ClearView) -> None:
    """Have a view shown or cleared, whatever was to be done with it in this step before."""
    draft.undo(lambda each: isinstance(each, ShowView | ClearView) and each.view_type == effect.view_type)
    draft.do(effect)


def _is_live(draft: StepBuilder, call_id: str) -> bool:
    """Whether a tool may still ask something for this call."""
    return call_id in draft.thread.subscriptions or draft.awaits_tool(call_id)
