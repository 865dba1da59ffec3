"""Language models: one completion from any provider, or from a script.

Nothing here loads a provider's package before a model of that provider is opened.
"""

from rapkit.models.errors import ModelError
from rapkit.models.model import Model, kept_open
from rapkit.models.registry import open_model

__all__ = ["Model", "ModelError", "kept_open", "open_model"]
