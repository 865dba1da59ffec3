"""JSON Schema of every message, for implementers in other languages; generated from the models.

`python -m rapkit.protocol.schemas` writes them into the folder `schemas` beside this file; a test compares the two.
They say what a receiver accepts. Two things they cannot say: that a `user_choice`'s default is one of its choices, and that
1.0 is not taken for an integer.
"""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from rapkit.protocol.callbacks import CALLBACKS
from rapkit.protocol.invocation import Invocation
from rapkit.protocol.notices import CallCancelled, ChoiceMade, Migrate, ThreadClosed
from rapkit.protocol.toolset import ToolsetDocument

FOLDER = Path(__file__).with_name("schemas")

MODELS: dict[str, type[BaseModel]] = {
    "invocation": Invocation,
    "thread_closed": ThreadClosed,
    "call_cancelled": CallCancelled,
    "migrate": Migrate,
    "choice_made": ChoiceMade,
    **CALLBACKS,
    "toolset": ToolsetDocument,
}


class _WireSchema(GenerateJsonSchema):
    """Schemas as a peer reads them: a message's type is required, and Python's titles and defaults are left out."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def field_is_required(self, field: Any, total: bool) -> bool:
        return "const" in self.generate_inner(field["schema"]) or super().field_is_required(field, total)


def json_schemas() -> dict[str, dict[str, Any]]:
    """The schemas by message name, draft 2020-12."""
    return {
        name: {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            **model.model_json_schema(schema_generator=_WireSchema),
        }
        for name, model in MODELS.items()
    }


def files() -> dict[str, str]:
    """What the folder holds: text by file name."""
    return {f"{name}.json": json.dumps(schema, indent=2) + "\n" for name, schema in json_schemas().items()}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in files().items():
        FOLDER.joinpath(name).write_text(text)
