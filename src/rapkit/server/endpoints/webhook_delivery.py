"""`Delivery`: one request that a source sent to a webhook."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pydantic_core import PydanticCustomError, from_json

from rapkit.errors import InvalidMessage
from rapkit.protocol.json_value import check_json
from rapkit.protocol.problems import clip


@dataclass(frozen=True)
class Delivery:
    """One request of a source, as it came; `headers` by their names in lower case.

    `id` is what the source calls this delivery, the same when it sends it again; `event` is the kind of thing that happened. Each is None
    if the source gives none, or if a function of yours does the verifying.
    """

    id: str | None
    event: str | None
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)

    @cached_property
    def json(self) -> Any:
        """The body as JSON, parsed once. If it is none, or nests too deep, `InvalidMessage`, which the source is told if you let it."""
        try:
            found = from_json(self.body)
            check_json(found)
        except PydanticCustomError as error:
            raise InvalidMessage(f"The body {error.message()}.") from None
        except ValueError as error:
            raise InvalidMessage(self._no_json(clip(str(error)))) from None
        return found

    def named(self, id: str | None, event: str | None) -> "Delivery":
        """The same delivery with what its source calls it; an empty name is none."""
        found = replace(self, id=id or None, event=event or None)
        vars(found).update({name: value for name, value in vars(self).items() if name == "json"})
        return found

    def _no_json(self, why: str) -> str:
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind and not kind.endswith("json"):
            return f"The body is {clip(kind)}, and JSON is wanted. Choose application/json where the webhook is set up."
        return f"The body is not JSON in UTF-8: {why}."
