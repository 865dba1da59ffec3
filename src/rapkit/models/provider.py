"""`ProviderModel`: a model of any provider, through pydantic-ai."""

import json
from collections.abc import Callable
from functools import cached_property
from types import TracebackType
from typing import Any, Self, cast

from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ToolCallPart,
)
from pydantic_ai.models import Model as PydanticModel
from pydantic_ai.models import StreamedResponse
from pydantic_ai.settings import ModelSettings
from pydantic_core import PydanticCustomError

from rapkit.kernel.completion import Question, Reply, Usage, WantedCall
from rapkit.models.errors import ModelError
from rapkit.models.extended_thinking import may_think, thinks_by_budget, without_thinking
from rapkit.models.provider_errors import explain_error
from rapkit.models.provider_request import ProviderRequest
from rapkit.models.reasoning_parts import store_reasoning, visible_text
from rapkit.models.tool_definitions import ToolDefinitions, warn_of
from rapkit.protocol.json_value import check_json

# These always say why they stopped. A stream of theirs that ends without a reason was cut, even if it ended in good order.
_SAY_WHY_THEY_STOPPED = {"openai", "anthropic"}


class ProviderModel:
    """A pydantic-ai model. Entering it keeps its connections; otherwise they last as long as there are completions under way."""

    def __init__(self, model: PydanticModel[Any], name: str) -> None:
        self._model = model
        self._name = name
        self._settings = _settings(model)
        self._left_out: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name it was opened by."""
        return self._name

    @property
    def takes_images(self) -> bool:
        """What pydantic-ai knows of the model."""
        return self._model.profile.get("supports_image_input", True)

    @cached_property
    def context_window(self) -> int | None:
        """What the list of prices knows of the model, which is the list pydantic-ai knows costs from."""
        try:
            _, found = get_snapshot().find_provider_model(self._model.model_name, None, self._model.system, None)
        except LookupError:
            return None
        return found.context_window

    async def __aenter__(self) -> Self:
        await self._model.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._model.__aexit__(kind, error, trace)

    async def complete(self, question: Question, on_text: Callable[[str], None]) -> Reply:
        """Make one completion; see `Model`."""
        try:
            offered = self._offer(question)
            history, settings = self._put(question, offered)
            async with (
                self._model,
                model_request_stream(
                    self._model,
                    history,
                    model_settings=settings,
                    model_request_parameters=offered.parameters(),
                ) as stream,
            ):
                await _listen(stream, on_text)
                response = stream.get()
        except Exception as error:  # noqa: BLE001 - SDKs raise anything; whatever it was, no completion was made
            failure = explain_error(error, self._model.system, self._secrets())
            # Without its cause, in which a key may be quoted.
            raise failure from None
        self._check(response)
        return _reply(response, offered, self._name)

    def _offer(self, question: Question) -> ToolDefinitions:
        offered = ToolDefinitions(question.tools)
        if offered.left_out and offered.left_out != self._left_out:
            warn_of(offered.left_out)
        self._left_out = offered.left_out
        return offered

    def _put(self, question: Question, offered: ToolDefinitions) -> tuple[list[ModelMessage], ModelSettings]:
        by_budget = thinks_by_budget(self._model, self._settings)
        asking = ProviderRequest(
            self._model, offered, question.instructions, takes_images=self.takes_images, tells=by_budget
        )
        history = asking.messages(question.conversation)
        if by_budget and not may_think(history):
            # The thoughts were another model's, or there were none yet. An answer without thoughts is better than none.
            return history, without_thinking(self._settings)
        return history, self._settings

    def _check(self, response: ModelResponse) -> None:
        provider = self._model.system
        reason = (response.provider_details or {}).get("finish_reason")
        if response.state != "complete" or (provider in _SAY_WHY_THEY_STOPPED and reason is None):
            raise ModelError(f"{provider} broke off in the middle of its answer.", retryable=True)
        if response.finish_reason == "content_filter" and not visible_text([*response.parts]):
            raise ModelError(f"{provider} withheld its answer: a content filter stopped it.", retryable=False)
        if response.finish_reason == "error":
            raise ModelError(f"{provider} failed while answering.", retryable=True)

    def _secrets(self) -> list[str]:
        key = getattr(getattr(self._model, "client", None), "api_key", None)
        return [key] if isinstance(key, str) and key else []


def _settings(model: PydanticModel[Any]) -> ModelSettings:
    ours: dict[str, Any] = {}
    if model.provider is not None and "max_retries" not in model.unsupported_settings:
        # The runtime retries, durably, and shows that it does. An SDK that retries too would only hide it.
        ours["max_retries"] = 0
    return cast("ModelSettings", {**ours, **(model.settings or {})})


async def _listen(stream: StreamedResponse, on_text: Callable[[str], None]) -> None:
    """Pass on the visible text, piece by piece: the same as `visible_text` makes of the whole."""
    began = apart = False
    async for event in stream:
        piece = ""
        if isinstance(event, PartStartEvent):
            if isinstance(event.part, TextPart):
                piece = event.part.content
            else:
                apart = True
        elif isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
            piece = event.delta.content_delta
        if piece:
            on_text(_clean("\n\n" + piece if began and apart else piece))
            began, apart = True, False


def _reply(response: ModelResponse, offered: ToolDefinitions, name: str) -> Reply:
    return Reply(
        text=_clean(visible_text([*response.parts])),
        calls=tuple(_wanted(part, offered) for part in response.parts if isinstance(part, ToolCallPart)),
        thoughts=_storable(store_reasoning(response)),
        usage=_usage(response),
        model=response.model_name or name,
    )


def _wanted(part: ToolCallPart, offered: ToolDefinitions) -> WantedCall:
    provider_id, name = _clean(part.tool_call_id), _clean(offered.name(part.tool_name))
    arguments: Any = part.args
    if arguments is None or (isinstance(arguments, str) and not arguments.strip()):
        arguments = {}  # how some say that there are none
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        check_json(arguments)
    except (ValueError, RecursionError) as error:
        return WantedCall(provider_id, name, None, f"The arguments are not valid JSON: {_why(error)}.")
    if not isinstance(arguments, dict):
        return WantedCall(provider_id, name, None, "The arguments are not a JSON object.")
    return WantedCall(provider_id, name, offered.real(name, arguments))


def _why(error: Exception) -> str:
    return f"it {error.message()}" if isinstance(error, PydanticCustomError) else str(error)


def _clean(text: str) -> str:
    """The text without halves of characters, which no store takes. They come when a provider cuts its text between two halves."""
    return text if text.isascii() else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _storable(thoughts: tuple[Any, ...]) -> tuple[Any, ...]:
    try:
        check_json(list(thoughts))
    except PydanticCustomError:
        return ()
    return thoughts


def _usage(response: ModelResponse) -> Usage:
    return Usage(1, response.usage.input_tokens, response.usage.output_tokens, _cost(response))


def _cost(response: ModelResponse) -> float:
    try:
        return float(response.cost().total_price)
    except (LookupError, ValueError, AssertionError):
        return 0.0  # the price is unknown
