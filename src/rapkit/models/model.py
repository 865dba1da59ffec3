"""The interface of a model."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol, runtime_checkable

from rapkit.kernel.completion import Question, Reply


@runtime_checkable
class Model(Protocol):
    """Makes completions, any number at a time. It remembers nothing that a reply depends on: threads move between processes."""

    @property
    def name(self) -> str:
        """What a person calls it, such as `openai:gpt-5-mini`."""
        ...

    @property
    def takes_images(self) -> bool:
        """Whether images in answers are shown to it; otherwise it is told that there was one."""
        ...

    @property
    def context_window(self) -> int | None:
        """How many tokens it takes, if that is known."""
        ...

    async def complete(self, question: Question, on_text: Callable[[str], None]) -> Reply:
        """Make one completion.

        `on_text` gets the visible text piece by piece as it comes; together the pieces are the reply's text. It must not raise. Raises
        ModelError, and then nothing that `on_text` got counts.
        """
        ...


def kept_open(model: Model) -> AbstractAsyncContextManager[object]:
    """Keep the model's connections open between completions, as long as the context lasts.

    Without it each completion that runs alone connects anew. A model without connections has nothing to keep.
    """
    return model if isinstance(model, AbstractAsyncContextManager) else nullcontext()
