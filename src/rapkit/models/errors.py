"""Errors of a model."""

from rapkit.errors import RapkitError


class ModelError(RapkitError):
    """A completion was not made; the text is for a person.

    `retryable` if the same question may well be answered later; `retry_after` is how many seconds the provider asks for, if it says.
    `too_long` if the model takes less than it was asked.
    """

    def __init__(
        self, message: str, *, retryable: bool, retry_after: float | None = None, too_long: bool = False
    ) -> None:
        super().__init__(message)
        self.retryable = retryable
        self.retry_after = retry_after
        self.too_long = too_long
