"""What a handler can know about the call it works on."""

import logging
from typing import Any

from rapkit.protocol import Invocation


class Context:
    """The call at hand. A parameter annotated with this class gets it, and is not shown to the model."""

    def __init__(self, message: Invocation, tool: str) -> None:
        self.user_id = message.user_id
        """The user the thread works for, if the runtime said so."""
        self.thread_id = message.group_id
        """The conversation thread that called."""
        self.thread_ancestors = message.thread_ancestors or ()
        """The threads above it, from the root down to its parent."""
        self.call_id = message.id
        """The id of this call within the thread."""
        self._tool = tool
        self._cancelled = False

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the ids of the call."""
        logger = logging.getLogger(f"rapkit.tool.{self._tool}")
        return _CallLog(logger, {"thread_id": self.thread_id, "call_id": self.call_id})

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for the result any more. An async handler is cancelled; a plain function should look here and return."""
        return self._cancelled

    def cancel(self) -> None:
        """Say that nobody waits for the result any more."""
        self._cancelled = True


class _CallLog(logging.LoggerAdapter[logging.Logger]):
    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        kwargs["extra"] = {**(self.extra or {}), **kwargs.get("extra", {})}
        return msg, kwargs
