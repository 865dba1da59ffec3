"""Every message, every mutation: valid ones survive, the others are refused as InvalidMessage, nothing else is raised."""

import json
from collections.abc import Callable
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rapkit.errors import InvalidMessage, InvalidToolset, ProtocolError
from rapkit.protocol import (
    BadInvocation,
    Message,
    dump,
    parse_call_cancelled,
    parse_callback,
    parse_choice_made,
    parse_invocation,
    parse_migrate,
    parse_thread_closed,
    parse_toolset,
)
from rapkit.protocol.callbacks import CALLBACKS
from rapkit.protocol.schemas import MODELS, json_schemas

PARSERS: dict[str, Callable[[bytes], Message | BadInvocation]] = {
    "invocation": parse_invocation,
    "thread_closed": parse_thread_closed,
    "call_cancelled": parse_call_cancelled,
    "migrate": parse_migrate,
    "choice_made": parse_choice_made,
    "toolset": parse_toolset,
}
VALIDATORS = {name: jsonschema_rs.validator_for(schema) for name, schema in json_schemas().items()}

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
ids = st.text(st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=20)
urls = st.builds(
    lambda scheme, host, rest: f"{scheme}://{host}{rest}",
    st.sampled_from(["http", "https", "HTTPS"]),
    st.sampled_from(["localhost:8001", "a.example", "[::1]:80"]),
    st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\\"), max_size=20).map("/".__add__),
)
base64s = st.sampled_from(["iVBO", "AA==", "AAA=", "iVBORw0K"])
media_types = st.sampled_from(["image/png", "image/svg+xml"])


def fields(required: dict[str, Any], **optional: Any) -> st.SearchStrategy[dict[str, Any]]:
    """An object in which an optional field is there, null or absent."""
    return st.fixed_dictionaries(required, optional={key: st.none() | value for key, value in optional.items()})


def typed(kind: str, **required: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({"type": st.just(kind), **required})


content = st.lists(typed("text", text=st.text()) | typed("image", data=base64s, mediaType=media_types), max_size=3)
segments = st.lists(
    typed("diff", content=st.fixed_dictionaries({"path": st.text(), "patch": st.text()}))
    | typed("image", content=st.fixed_dictionaries({"data": base64s, "mediaType": media_types}))
    | typed("text", content=st.text())
    | typed("hologram", content=json_values),
    max_size=3,
)
routing = {"group_id": ids, "id": ids}
tools = st.lists(
    fields(
        {
            "name": st.from_regex(r"[A-Za-z0-9_.-]{1,20}", fullmatch=True),
            "description": st.text(),
            "inputSchema": st.sampled_from([{"type": "object"}, {"type": "object", "required": []}]),
        },
        annotations=fields({}, readOnly=st.booleans(), requiresAuth=st.text(), **{"x-acme": json_values}),
        displayScript=st.text(),
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda tool: tool["name"],
)

OBJECTS: dict[str, st.SearchStrategy[dict[str, Any]]] = {
    "invocation": fields(
        {**routing, "operation": ids, "arguments": st.dictionaries(st.text(), json_values), "callback_url": urls},
        call_id=ids,
        thread_ancestors=st.lists(ids, max_size=3),
        user_id=ids,
        toolset_version=ids,
    ),
    "thread_closed": fields({"thread_id": ids}),
    "call_cancelled": fields({"thread_id": ids, "tool_call_id": ids}),
    "migrate": fields({"session_id": ids, "destination_url": urls}),
    "choice_made": fields({"id": ids, "selected": st.integers(-5, 5)}),
    "tool_result": st.one_of(
        fields(
            {"type": st.just("tool_result"), **routing, "text": st.text()},
            call_id=ids,
            content=content,
            display_as=segments,
            subscription=st.booleans(),
        ),
        fields({"type": st.just("tool_result"), **routing, "content": content}, call_id=ids, text=st.text()),
    ),
    "subscription_event": fields(
        {"type": st.just("subscription_event"), "group_id": ids, "tool_call_id": ids, "text": st.text()},
        associative=st.booleans(),
        final=st.booleans(),
    ),
    "oauth": fields({"type": st.just("oauth"), **routing, "auth_url": urls}, call_id=ids),
    "user_choice": fields(
        {
            "type": st.just("user_choice"),
            **routing,
            "prompt": st.text(),
            "choices": st.lists(st.text(), min_size=2, max_size=4),
            "default": st.integers(0, 1),
            "response_url": urls,
        },
        call_id=ids,
    ),
    "view_update": fields({"type": st.just("view_update"), "group_id": ids, "view_type": ids, "content": json_values}),
    "toolset": fields(
        {"name": ids, "endpoint": urls, "tools": tools},
        description=st.text(),
        needsMigration=st.booleans(),
        version=ids,
    ),
}

messages = st.sampled_from(sorted(OBJECTS)).flatmap(lambda name: OBJECTS[name].map(lambda value: (name, value)))
replacements: st.SearchStrategy[Any] = st.sampled_from(
    [
        None,
        True,
        False,
        7.5,
        -1,
        "",
        "x",
        "a\nb",
        "http://",
        [],
        {},
        [1],
        [None],
        [{}],
        {"type": "zzz"},
        [{"type": "text"}],
    ]
)

quick = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def parse(name: str, body: bytes) -> Message | None:
    """The message, or None if it was refused; whatever else is raised fails the test."""
    try:
        message = PARSERS.get(name, parse_callback)(body)
    except (InvalidMessage, InvalidToolset):
        return None
    if isinstance(message, BadInvocation):
        assert message.problem
        return None
    return message


def test_every_message_has_a_generator() -> None:
    assert set(OBJECTS) == set(MODELS)


@quick
@given(messages)
def test_every_valid_message_survives_a_round_trip(message: tuple[str, dict[str, Any]]) -> None:
    """TRA-1"""
    name, value = message

    parsed = parse(name, encode(value))

    assert parsed is not None
    assert parse(name, dump(parsed)) == parsed
    written = json.loads(dump(parsed))
    if name == "view_update":
        assert written == value
    elif name != "toolset":  # where the same happens further inside
        assert written == without_the_unsaid(value)


def without_the_unsaid(value: dict[str, Any]) -> dict[str, Any]:
    """The object without what is left out when written: null for absent, and false where absent means false."""
    said = {key: given for key, given in value.items() if given is not None and given is not False}
    if "display_as" in said:
        said["display_as"] = [
            {key: given for key, given in segment.items() if given is not None} for segment in said["display_as"]
        ]
    return said


@quick
@given(messages, st.text(), json_values)
def test_an_unknown_field_changes_nothing(message: tuple[str, dict[str, Any]], key: str, extra: Any) -> None:
    name, value = message

    parsed = parse(name, encode({f"x_{key}": extra} | value))

    assert parsed is not None
    assert parsed == parse(name, encode(value))


@quick
@given(messages, st.data())
def test_a_required_field_that_is_missing_or_null_is_named(
    message: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    """CB-7, INV-14, DIS-4"""
    name, value = message
    required = [key for key, field in MODELS[name].model_fields.items() if field.is_required() or key == "type"]
    key = data.draw(st.sampled_from(required))
    without = {other: given for other, given in value.items() if other != key}

    assert key in problem_with(name, without)
    if (name, key) != ("view_update", "content"):
        assert key in problem_with(name, without | {key: None})


def problem_with(name: str, value: dict[str, Any]) -> str:
    try:
        message = PARSERS.get(name, parse_callback)(encode(value))
    except ProtocolError as error:
        return str(error)
    assert isinstance(message, BadInvocation)
    return message.problem


@quick
@given(messages, st.data())
def test_an_optional_field_may_be_null_or_absent_alike(
    message: tuple[str, dict[str, Any]], data: st.DataObject
) -> None:
    name, value = message
    if name == "tool_result":
        value = value | {"text": value.get("text") or "", "content": value.get("content") or []}
    optional = [key for key, field in MODELS[name].model_fields.items() if not field.is_required() and key != "type"]
    for key in optional:
        without = {other: given for other, given in value.items() if other != key}
        assert parse(name, encode(without)) == parse(name, encode(without | {key: None})) != None  # noqa: E711


@quick
@given(messages, st.data())
def test_the_shipped_schema_and_the_model_agree(message: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    """CB-7"""
    name, value = message
    assert VALIDATORS[name].is_valid(value)
    mutated = data.draw(mutations(value))

    accepted = parse(name, encode(mutated)) is not None

    if name == "invocation":
        # Of its optional fields more is taken than the schema asks senders to write, or they are ignored.
        optional = [key for key, field in MODELS[name].model_fields.items() if not field.is_required()]
        mutated = {key: given for key, given in mutated.items() if key not in optional or key == "arguments"}
    if mutated.get("type") != value.get("type"):
        return
    is_valid = VALIDATORS[name].is_valid(mutated)
    if name in CALLBACKS:  # more is taken from others than they are asked to write: see test_callbacks.py
        assert accepted or not is_valid
    else:
        assert accepted == is_valid


@st.composite
def mutations(draw: st.DrawFn, value: dict[str, Any]) -> dict[str, Any]:
    """The object with one thing changed somewhere: dropped, replaced by another type, or added."""
    changed: dict[str, Any] = json.loads(json.dumps(value))
    node: Any = changed
    while True:
        # Below these, anything goes and JSON Schema cannot follow.
        inner = [
            child
            for key, child in (node.items() if isinstance(node, dict) else enumerate(node))
            if isinstance(child, dict | list) and child and key not in ("arguments", "inputSchema", "x-acme")
        ]
        if not inner or draw(st.booleans()):
            break
        node = draw(st.sampled_from(inner))
    keys = sorted(node) if isinstance(node, dict) else range(len(node))
    key: Any = draw(st.sampled_from([key for key in keys if key != "inputSchema"] or list(keys)))
    if isinstance(node, dict) and draw(st.booleans()):
        del node[key]
    else:
        node[key] = draw(replacements)
    return changed


@quick
@given(OBJECTS["invocation"], st.data())
def test_an_invocation_is_refused_only_if_no_answer_could_be_delivered(
    value: dict[str, Any], data: st.DataObject
) -> None:
    """INV-10, INV-11"""
    key = data.draw(
        st.sampled_from(["operation", "arguments", "call_id", "thread_ancestors", "user_id", "toolset_version"])
    )
    mutated = value | {key: data.draw(replacements)}

    message = parse_invocation(encode(mutated))

    assert (message.callback_url, message.group_id, message.id) == (
        value["callback_url"],
        value["group_id"],
        value["id"],
    )
    for vital in ("callback_url", "group_id", "id"):
        with pytest.raises(InvalidMessage, match=vital):
            parse_invocation(encode(mutated | {vital: data.draw(st.sampled_from([None, 5, "", [], "a\nb"]))}))


@quick
@given(messages, st.data())
def test_a_message_that_was_cut_off_is_refused(message: tuple[str, dict[str, Any]], data: st.DataObject) -> None:
    name, value = message
    body = encode(value)

    assert parse(name, body[: data.draw(st.integers(0, len(body) - 1))]) is None


@quick
@given(messages, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=3))
def test_flipped_bytes_are_refused_or_mean_something(
    message: tuple[str, dict[str, Any]], flips: list[tuple[int, int]]
) -> None:
    name, value = message
    body = bytearray(encode(value))
    for position, byte in flips:
        body[position % len(body)] = byte

    parsed = parse(name, bytes(body))

    assert parsed is None or parse(name, dump(parsed)) == parsed


@quick
@given(st.sampled_from(sorted(OBJECTS)), st.binary() | json_values.map(encode))
def test_arbitrary_input_never_raises_anything_else(name: str, body: bytes) -> None:
    parse(name, body)
