"""The model of an agent in a test, which records what it was asked."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rapkit.kernel.completion import Question, Reply
from rapkit.models import Model, ModelError, open_model
from rapkit.models.scripted import Answering, Scripted
from rapkit.testing.activity import Activity, resolve

if TYPE_CHECKING:
    from pydantic_ai.models import Model as PydanticModel


class WatchedModel:
    """A model, and every question it was asked."""

    def __init__(self, model: Model, activity: Activity) -> None:
        self.questions: list[Question] = []
        """What it was asked, oldest first; a question that was asked again because the answer was lost is there twice."""
        self.replies: list[Reply] = []
        """What it said to that, as far as it said anything."""
        self._model = model
        self._activity = activity
        self._mistakes: list[Exception] = []

    @property
    def name(self) -> str:
        """That of the model."""
        return self._model.name

    @property
    def takes_images(self) -> bool:
        """Whether it is shown images."""
        return self._model.takes_images

    @property
    def context_window(self) -> int | None:
        """That of the model."""
        return self._model.context_window

    async def complete(self, question: Question, on_text: Callable[[str], None]) -> Reply:
        """Make one completion; see `Model`."""
        self.questions.append(question)
        ending = self._activity.begin()
        try:
            reply = await self._model.complete(question, on_text)
        except ModelError:
            raise
        except Exception as error:
            # Such as a failed assertion in the test's own function: the thread would try it again and again.
            self._mistakes.append(error)
            raise ModelError(f"The test's model failed: {error!r}", retryable=False) from error
        finally:
            resolve(ending)
            self._activity.note()
        self.replies.append(reply)
        return reply

    def complain(self) -> None:
        """Raise what the test's own function has raised; each error once."""
        if self._mistakes:
            raise self._mistakes.pop(0)


def model_of(given: "str | Sequence[Mapping[str, Any]] | Answering | Model | PydanticModel[Any]") -> Model:
    """The model a test means: rules, a function, a model of ours or of pydantic-ai's, or a name."""
    if isinstance(given, Model):
        return given
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Scripted.from_rules([dict(rule) for rule in given])
    if callable(given):
        return Scripted(given)
    return open_model(given)
