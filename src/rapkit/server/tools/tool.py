"""A tool: a function and its traits."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from rapkit.errors import ConfigError
from rapkit.protocol import Annotations, ToolDefinition
from rapkit.protocol.display_script import is_script
from rapkit.protocol.expected_time import ANNOTATION, ExpectedTime, parse_expected_time
from rapkit.protocol.problems import problems
from rapkit.server.tools.context import Context
from rapkit.server.tools.event_rate import DEFAULT_RATE
from rapkit.server.tools.signature import Signature, read_signature
from rapkit.server.tools.topic_pattern import TopicPattern, read_pattern

PAYLOAD = "payload"
"""The parameter by which a function gets what was emitted to its topic."""

DEFAULT_CONFIRM_AFTER: Final = 1.0
"""Seconds of running after which a generator is confirmed, unless its subscription says otherwise."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What an author says about a tool beyond its signature."""

    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    long_running: bool = False
    requires_auth: str | None = None
    display: str | None = None
    timeout: float | None = None
    expected: ExpectedTime | None = None


@dataclass(frozen=True, slots=True)
class SubscriptionTraits:
    """What an author says about a subscription besides.

    `associative`: whether its events belong into the subscribing thread itself, unless they say otherwise. `topic`: where its events come
    from, if not from the function itself. `rate`: how many events a second leave, None for no limit. `batch`: whether events that would
    have to wait are put together. `confirm_after`: after how many seconds of running a generator is confirmed that has neither stored a
    checkpoint nor yielded an event, None for never.
    """

    associative: bool = False
    topic: str | None = None
    rate: float | None = DEFAULT_RATE
    batch: bool = False
    confirm_after: float | None = DEFAULT_CONFIRM_AFTER

    @property
    def pattern(self) -> TopicPattern | None:
        """The topic, read."""
        return None if self.topic is None else read_pattern(self.topic)


@dataclass(frozen=True, slots=True)
class Tool:
    """One operation of a toolset."""

    signature: Signature
    traits: Traits
    subscription: SubscriptionTraits | None = None

    @property
    def name(self) -> str:
        """The operation's name on the wire."""
        return self.signature.name

    @property
    def repeatable(self) -> bool:
        """Whether a handler that was lost half-way may run again. Of a subscription nothing has run when its call ends."""
        return self.traits.read_only or self.traits.idempotent or self.subscription is not None

    def definition(self) -> ToolDefinition:
        """The tool as the wire describes it."""
        traits = self.traits
        expected = traits.expected
        told = "" if expected is None else f"\n\nExpected time: {expected.text}."
        annotations = Annotations(
            requiresAuth=traits.requires_auth,
            readOnly=traits.read_only or None,
            destructive=traits.destructive or None,
            idempotent=traits.idempotent or None,
            longRunning=traits.long_running or self.subscription is not None or None,
            **({} if expected is None else {ANNOTATION: [expected.least, expected.most]}),
        )
        return ToolDefinition(
            name=self.name,
            description=f"{self.signature.description}{told}".lstrip(),
            inputSchema=self.signature.input_schema,
            annotations=annotations if annotations.model_dump(exclude_none=True) else None,
            displayScript=traits.display,
        )


def read_expected(text: str | None, function: Callable[..., Any], name: str | None) -> ExpectedTime | None:
    """What an author says about a tool's time; `ConfigError` if it cannot be read."""
    try:
        return None if text is None else parse_expected_time(text)
    except ValueError as error:
        raise ConfigError(f"tool {name or getattr(function, '__name__', '?')!r}: {error}") from None


def make_tool(function: Callable[..., Any], name: str | None, traits: Traits) -> Tool:
    """Read the function; `ConfigError` if it cannot be a tool."""
    signature = read_signature(function, context_type=Context, name=name)
    if signature.is_generator:
        raise ConfigError(
            f"tool {signature.name!r} is a generator. A tool returns one result: collect the parts in a list and return that. "
            "If they are events, put @tools.subscription above it."
        )
    if traits.timeout is not None and not 0 < traits.timeout < float("inf"):
        raise ConfigError(f"tool {signature.name!r}: timeout is a number of seconds above 0, not {traits.timeout}.")
    return _described(Tool(signature, traits))


def make_subscription(
    function: Callable[..., Any], name: str | None, traits: Traits, subscription: SubscriptionTraits
) -> Tool:
    """Read the function; `ConfigError` if it cannot be a subscription."""
    pattern = subscription.pattern
    supplied = () if pattern is None else (PAYLOAD,)
    signature = read_signature(function, context_type=Context, name=name, supplied=supplied)
    called = f"subscription {signature.name!r}"
    if subscription.rate is not None and not 0 < subscription.rate < float("inf"):
        raise ConfigError(f"{called}: rate is a number of events a second above 0, not {subscription.rate}.")
    if subscription.confirm_after is not None and not 0 <= subscription.confirm_after < float("inf"):
        raise ConfigError(
            f"{called}: confirm_after is a number of seconds from 0 on, or None, not {subscription.confirm_after}."
        )
    if traits.timeout is not None and (pattern is None or not 0 < traits.timeout < float("inf")):
        raise ConfigError(
            f"{called}: timeout is a number of seconds above 0, for a function with a topic; a generator may take as long as it likes."
        )
    if pattern is None and not signature.is_generator:
        raise ConfigError(
            f"{called} is not a generator, so it has no way to tell of events. Let it yield them, "
            "or give it the topic they are emitted to: @tools.subscription(topic='...')."
        )
    if pattern is not None:
        _check_topic_function(signature, called, pattern)
    return _described(Tool(signature, traits, subscription))


def _check_topic_function(signature: Signature, called: str, pattern: TopicPattern) -> None:
    if signature.is_generator:
        raise ConfigError(
            f"{called} has a topic and is a generator. For a topic, return the event, a list of events, or None; "
            "to find events itself, it needs no topic."
        )
    if PAYLOAD not in inspect.signature(signature.function).parameters:
        raise ConfigError(
            f"{called} has no parameter 'payload' to get what is emitted to its topic. Add 'payload: dict' to its parameters."
        )
    if unknown := [each for each in pattern.placeholders if each not in signature.parameters]:
        known = ", ".join(signature.parameters) or "none"
        raise ConfigError(
            f"{called}: its topic {pattern.text!r} names {', '.join(unknown)}, which the model cannot give. Its parameters: {known}."
        )


def _described(tool: Tool) -> Tool:
    display = tool.traits.display
    if display is not None and not is_script(display):
        raise ConfigError(
            f"tool {tool.name!r}: display is no Rhai expression: {display!r}. "
            "Texts stand in double quotes and are joined with +, like '\"Forecast for \" + args.city'."
        )
    try:
        tool.definition()
    except ValidationError as error:
        found = "\n".join(problems("tool", ToolDefinition, error))
        raise ConfigError(f"tool {tool.name!r} cannot be described to callers:\n{found}") from None
    return tool
