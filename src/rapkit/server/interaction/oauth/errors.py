"""Errors of OAuth requests. They carry an error code from a known list, and nothing else the provider said."""

from rapkit.errors import RapkitError, ToolError


class AuthorizationRefused(RapkitError):
    """The provider no longer honours what the user once gave: they have to authorise us again."""


class ProviderUnavailable(ToolError):
    """The provider gave no answer one can use: `reason` says why. What is stored may still be good. The text is for the model."""

    def __init__(self, provider: str, reason: str) -> None:
        super().__init__(f"{provider} gave no token: {reason}. Try again later.")
        self.reason = reason
