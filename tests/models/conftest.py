"""Each provider in turn, and the server that stands in for it."""

from collections.abc import AsyncIterator

import pytest

from tests.models.anthropic_server import AnthropicServer
from tests.models.openai_server import OpenAIServer
from tests.models.replies import ProviderServer

NAMES = ["openai:gpt-5-mini", "openai-chat:gpt-4o", "anthropic:claude-haiku-5-5"]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    named: str = request.param
    return named


@pytest.fixture
async def server(name: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ProviderServer]:
    async with AnthropicServer() if name.startswith("anthropic") else OpenAIServer() as server:
        for variable, value in server.env.items():
            monkeypatch.setenv(variable, value)
        yield server
        assert server.refusals == []
