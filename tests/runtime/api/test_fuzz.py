"""Whatever is sent, it is answered in words, and never with a failure of ours."""

import asyncio
import contextlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.runtime.api.client import Client, serving_api

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
FIELDS = st.sampled_from(["text", "user_id", "selected", "slices", "tokens", "cost", "x"])
BODIES = st.binary(max_size=30) | st.dictionaries(FIELDS, VALUES, max_size=3).map(
    lambda each: json.dumps(each).encode()
)
IDS = st.sampled_from(["{thread}", "thr_none", "rapkit"]) | st.text(min_size=1, max_size=10)
QUERIES = st.dictionaries(
    st.sampled_from(["limit", "cursor", "status", "parent"]), st.text(max_size=8) | st.integers().map(str), max_size=2
)
PATHS = st.sampled_from(
    [
        "/v1/threads",
        "/v1/threads/{id}",
        "/v1/threads/{id}/history",
        "/v1/threads/{id}/messages",
        "/v1/threads/{id}/calls/{id}/cancel",
        "/v1/threads/{id}/calls/{id}/choice",
        "/v1/threads/{id}/calls/{id}/answer",
        "/v1/threads/{id}/family",
        "/v1/threads/{id}/budget",
    ]
)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "Idempotency-Key": st.text(st.characters(min_codepoint=33, max_codepoint=255), max_size=5),
        "Content-Type": st.sampled_from(["application/json", "text/plain", ""]),
    },
)


REQUESTS = st.tuples(st.sampled_from(["GET", "POST"]), PATHS, IDS, QUERIES, BODIES, HEADERS)


@pytest.fixture
def served() -> Iterator[tuple[asyncio.Runner, Client]]:
    """One server for all examples, and the loop it runs in."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        api = runner.run(stack.enter_async_context(serving_api("sqlite:///:memory:")))
        yield runner, api.client()
        runner.run(stack.aclose())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(requests=st.lists(REQUESTS, min_size=1, max_size=4))
def test_nothing_that_is_sent_is_answered_with_500(
    served: tuple[asyncio.Runner, Client], requests: list[tuple[str, str, str, dict[str, str], bytes, Any]]
) -> None:
    runner, client = served

    async def send() -> None:
        thread = (await client.begin()).rpartition("/")[2]
        for request in requests:
            await _send(client, thread, *request)

    runner.run(send())


async def _send(
    client: Client, thread: str, method: str, path: str, id: str, query: dict[str, str], body: bytes, headers: Any
) -> None:
    named = quote(id.replace("{thread}", thread).encode("utf-8", "surrogatepass"), safe="")
    asked = "&".join(
        f"{name}={quote(value.encode('utf-8', 'surrogatepass'), safe='')}" for name, value in query.items()
    )
    reply = await client.request(method, f"{path.replace('{id}', named)}?{asked}", body, headers)
    assert reply.status < 500, reply
    if reply.status >= 400 and not reply.headers["content-type"].startswith("text/plain"):  # the bare router's own 404
        assert reply.detail
