"""Field types of messages: text, ids, URLs, flags."""

from operator import not_
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, StringConstraints, WithJsonSchema

MAX_ID = 512
MAX_URL = 4096

ID_PATTERN = r"^[^\x00-\x1f\x7f-\x9f]*$"
"""Ids are whatever the peer likes but control characters, which only serve to forge log lines and break stores (CLO-7)."""

# Verbatim and opaque (CB-1): this says only that the string is an absolute URL with a host, in one piece. No backslash,
# because clients disagree about whether it ends the host. Which addresses may be dialled is decided where they are dialled.
HTTP_URL_PATTERN = (
    r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s\x00-\x1f\x7f-\x9f\\/?#:@][^\s\x00-\x1f\x7f-\x9f\\]*$"  # one char of host, then on
)

# Any text. The bound refuses nothing; only with one does pydantic look into a Python string for lone surrogates, which come
# from undecodable file names and output, and which could not be sent.
Text = Annotated[str, StringConstraints(min_length=0), WithJsonSchema({"type": "string"})]
Id = Annotated[str, StringConstraints(min_length=1, max_length=MAX_ID, pattern=ID_PATTERN)]
HttpUrl = Annotated[str, StringConstraints(min_length=1, max_length=MAX_URL, pattern=HTTP_URL_PATTERN)]


def _null_is_false(value: Any) -> Any:
    return False if value is None else value


# Null and absent are alike for every optional field; false is what absent means, so it is not written.
Flag = Annotated[bool, BeforeValidator(_null_is_false, json_schema_input_type=bool | None), Field(exclude_if=not_)]
