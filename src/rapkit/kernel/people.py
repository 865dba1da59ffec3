"""What tools want from the user, and show to the user. The call stays pending; the model is not asked."""

from rapkit.kernel.calls import refuse_question
from rapkit.kernel.draft import Draft
from rapkit.kernel.effects import SendChoice, ShowAuthorization, ShowView
from rapkit.kernel.entries import AuthorizationAsked, ChoiceAsked, ChoiceMadeEntry, Failed, ViewChanged
from rapkit.kernel.incoming import AnswerUndelivered, ChooseFor
from rapkit.kernel.thread import OpenChoice
from rapkit.protocol import OAuthRequest, UserChoice, ViewUpdate

_NOT_LIVE = "no such call is pending, and no such subscription active"
_MOST_QUESTIONS = 16
_LONGEST_PROMPT = 10_000
_MOST_CHOICES = 100
_LONGEST_CHOICE = 1000


def receive_oauth(draft: Draft, asked: OAuthRequest) -> None:
    """The user is shown where to authorise the tool (OAU-1)."""
    if not _is_live(draft, asked.id):
        draft.ignore("oauth", _NOT_LIVE, asked.id)
        return
    if asked.id not in draft.thread.authorizing:
        draft.change(authorizing=(*draft.thread.authorizing, asked.id))
    draft.journal(AuthorizationAsked(asked.id))
    draft.do(ShowAuthorization(asked.id, asked.auth_url))


def receive_choice(draft: Draft, asked: UserChoice) -> None:
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
    draft.change(choices={**draft.thread.choices, asked.id: (*open_ones, choice)})
    draft.journal(ChoiceAsked(asked.id, asked.prompt, asked.choices, asked.default))


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


def receive_choice_made(draft: Draft, made: ChooseFor) -> None:
    """The user's choice, or the default if the question is dismissed, goes to the tool."""
    open_ones = draft.thread.choices.get(made.call_id, ())
    if not open_ones:
        draft.ignore("choice", "no question of this call is open", made.call_id)
        return
    choice, *others = open_ones
    selected = choice.default if made.selected is None else made.selected
    if not 0 <= selected < len(choice.choices):
        draft.ignore("choice", f"there are choices 0 to {len(choice.choices) - 1}, not {selected}", made.call_id)
        return
    left = {**draft.thread.choices, made.call_id: tuple(others)}
    draft.change(choices={call: each for call, each in left.items() if each})
    draft.journal(ChoiceMadeEntry(made.call_id, selected, dismissed=made.selected is None))
    draft.do(SendChoice(made.call_id, choice.server, choice.response_url, selected))


def receive_answer_undelivered(draft: Draft, undelivered: AnswerUndelivered) -> None:
    """The user should know that the choice had no effect; the call is as pending as it was."""
    draft.journal(Failed(f"Your choice could not be delivered to the tool that asked: {undelivered.problem}"))


def receive_view(draft: Draft, update: ViewUpdate) -> None:
    """The latest content of a view is shown, and replaces what was shown before (VIE-1)."""
    views = draft.thread.views
    if update.view_type not in views:
        if len(views) >= draft.limits.views:
            draft.ignore("view_update", f"the thread has {len(views)} views, which is the limit")
            return
        draft.change(views=(*views, update.view_type))
    draft.journal(ViewChanged(update.view_type))
    draft.do(ShowView(update.view_type, update.content))


def _is_live(draft: Draft, call_id: str) -> bool:
    return call_id in draft.thread.pending or call_id in draft.thread.subscriptions
