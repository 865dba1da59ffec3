"""Rewrite the input schemas of tools into a form that every provider accepts.

Schemas are untrusted, and a provider refuses every request with a schema that it does not support. So it is sent in the newest draft, with
names that are taken everywhere, and if that cannot be, as words only. Nothing is lost: arguments are checked against the real schema
anyway.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from rapkit.models.tool_names import provider_argument
from rapkit.protocol.input_schema import DATA, NAMED, REFERENCES, BadSchema, compile_schema

_NOT_AT_THE_TOP = ("oneOf", "anyOf", "allOf", "not", "enum")
# Below these stand names of properties; below the rest of NAMED stand names of other things.
_BY_PROPERTY = frozenset({"properties", "dependentSchemas", "dependentRequired", "dependencies"})
_EXCLUSIVE = {"exclusiveMinimum": "minimum", "exclusiveMaximum": "maximum"}


@dataclass(frozen=True, slots=True)
class ProviderSchema:
    """A schema as it is sent; `remark` says what had to be left out of it. `names` has the real names by those that are shown."""

    schema: dict[str, Any]
    remark: str = ""
    names: dict[str, str] = field(default_factory=dict)

    def real(self, arguments: Any) -> Any:
        """Arguments as the model gave them, under their real names."""
        return _renamed(arguments, self.names) if self.names else arguments

    def shown(self, arguments: Any) -> Any:
        """Arguments of a call as the model is shown them."""
        return _renamed(arguments, {real: shown for shown, real in self.names.items()}) if self.names else arguments


def provider_schema(schema: dict[str, Any]) -> ProviderSchema:
    """The schema of a tool's arguments as every provider takes it."""
    names: dict[str, str] = {}
    sent = {"type": "object", "properties": {}, **_renewed(schema, names)}
    if sent != {"type": "object", "properties": {}, **schema}:
        try:
            compile_schema(sent)
        except BadSchema:
            # Such as one that refers to a place which is another now.
            loose = {"type": "object", "properties": {}}
            return ProviderSchema(loose, f"\nThe arguments must match this JSON schema: {_words(schema)}")
    if unwelcome := {key: sent.pop(key) for key in _NOT_AT_THE_TOP if key in sent}:
        return ProviderSchema(sent, f"\nThe arguments must also match this JSON schema: {_words(unwelcome)}", names)
    return ProviderSchema(sent, names=names)


def _renewed(node: Any, names: dict[str, str]) -> Any:
    """The schema in the newest draft; `names` gets the real names of what is renamed."""
    if isinstance(node, list):
        return [_renewed(item, names) for item in node]
    if not isinstance(node, dict):
        return node
    renewed: dict[str, Any] = {}
    for key, value in node.items():
        if key in DATA:
            renewed[key] = value
        elif key == "required" and isinstance(value, list):
            renewed[key] = _shown_all(value, names)
        elif key in NAMED | _BY_PROPERTY and isinstance(value, dict):
            renewed[key] = {
                _shown(name, names) if key in _BY_PROPERTY else name: _below(key, item, names)
                for name, item in value.items()
            }
        elif key in REFERENCES and isinstance(value, str):
            renewed[key] = _shown_reference(value, names)
        elif key != "$schema":
            renewed[key] = _renewed(value, names)
    return _modern(renewed)


def _below(key: str, item: Any, names: dict[str, str]) -> Any:
    if isinstance(item, list) and key in ("dependentRequired", "dependencies"):
        return _shown_all(item, names)
    return _renewed(item, names)


def _modern(node: dict[str, Any]) -> dict[str, Any]:
    for exclusive, bound in _EXCLUSIVE.items():
        # Draft 4 had a mark beside the bound, where there is a bound of its own now.
        if node.get(exclusive) is True and bound in node:
            node[exclusive] = node.pop(bound)
        elif isinstance(node.get(exclusive), bool):
            del node[exclusive]
    if isinstance(node.get("items"), list):
        node["prefixItems"] = node.pop("items")
        if "additionalItems" in node:
            node["items"] = node.pop("additionalItems")
    kind = node.get("type")
    if "items" not in node and (kind == "array" or (isinstance(kind, list) and "array" in kind)):
        node["items"] = {}  # OpenAI refuses a list of it does not know what
    return node


def _shown(name: str, names: dict[str, str]) -> str:
    shown = provider_argument(name)
    if shown != name:
        names[shown] = name
    return shown


def _shown_all(values: list[Any], names: dict[str, str]) -> list[Any]:
    return [_shown(value, names) if isinstance(value, str) else value for value in values]


def _shown_reference(reference: str, names: dict[str, str]) -> str:
    """A reference that leads through a property, by its name now. One that writes the name in another way is found to lead nowhere."""
    steps = reference.split("/")
    for number in range(1, len(steps)):
        if steps[number - 1] in _BY_PROPERTY:
            steps[number] = _shown(steps[number], names)
    return "/".join(steps)


def _renamed(value: Any, names: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {names.get(key, key): _renamed(item, names) for key, item in value.items()}
    return [_renamed(item, names) for item in value] if isinstance(value, list) else value


def _words(schema: dict[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False)
