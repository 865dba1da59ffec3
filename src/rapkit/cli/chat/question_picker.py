"""Put a thread's questions to the user in a picker."""

from typing import TYPE_CHECKING, Any

from rapkit.cli.agent_api import AgentRefused, AgentUnreachable
from rapkit.cli.chat.background_feed import in_thread
from rapkit.cli.chat.journal_renderer import note, problem
from rapkit.cli.chat.picker import Picker
from rapkit.cli.threads.thread_lookup import path_of

if TYPE_CHECKING:
    from collections.abc import Hashable

    from rapkit.cli.chat.displayed_thread import DisplayedQuestion, DisplayedThread
    from rapkit.cli.chat.session import Chat

_PATIENCE = 10.0


class QuestionPicker:
    """Shows one open question after the other. Those that were answered, or left for later, are not shown again."""

    def __init__(self, chat: "Chat") -> None:
        self._chat = chat
        self._settled: set[Hashable] = set()

    def offer(self) -> None:
        """Show the first question that is open, and none that is not open any more."""
        questions = {question.key: question for question in self._chat.displayed.questions.values()}
        shown = self._chat.picker
        if shown is not None and is_question(shown) and shown.key not in questions:
            self._chat.end_question()
            shown = None
        if shown is None:
            waiting = (question for key, question in questions.items() if key not in self._settled)
            if question := next(waiting, None):
                self._chat.picker = self._picker(self._chat.displayed, question)

    def again(self) -> None:
        """Show those, too, that were left for later."""
        if not self._chat.displayed.questions:
            self._chat.print([note("No question is open here.")])
        self._settled -= {question.key for question in self._chat.displayed.questions.values()}
        self.offer()

    def leave(self, picker: Picker) -> None:
        """Leave a question for later."""
        self._settled.add(picker.key)
        self.offer()

    def _picker(self, displayed: "DisplayedThread", question: "DisplayedQuestion") -> Picker:
        def answer(how: str, body: dict[str, Any]) -> None:
            self._settled.add(question.key)
            self._chat.start(self._answer(displayed, question, how, body))

        return Picker(
            question.key,
            question.prompt,
            question.choices,
            lambda number: answer("choice", {"selected": number}),
            # Without a default nothing is chosen by an Enter that was meant for something else.
            at=question.default,
            default=question.default,
            said=(lambda text: answer("answer", {"text": text})) if question.in_words else None,
            dismissed=lambda: answer("choice", {"selected": None}),
        )

    async def _answer(
        self, displayed: "DisplayedThread", question: "DisplayedQuestion", how: str, body: dict[str, Any]
    ) -> None:
        path = path_of(str(displayed.id), "calls", question.call_id, how)
        body = {**body, "asked_at": question.asked_at}
        try:
            await in_thread(lambda: self._chat.api.post(path, body, patience=_PATIENCE))
        except AgentUnreachable as error:
            self._settled.discard(question.key)
            self._chat.print([problem(f"Not answered: {error}")])
            self.offer()
        except AgentRefused as error:
            self._chat.print([problem(str(error))])
        self._chat.look_soon()


def is_question(picker: Picker) -> bool:
    """Whether a thread asks this, and not a command."""
    return isinstance(picker.key, tuple)
