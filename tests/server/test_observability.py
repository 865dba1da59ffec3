"""What an operator sees of calls: log lines, metrics, traces."""

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rapkit import ToolError, Toolset
from tests.crash.processes import Process, free_port
from tests.server.interaction.oauth.test_calls import message_of
from tests.server.served_toolset import Reply, exchange, invocation, serving
from tests.server.sink import Sink

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE}-{PARENT}-01"


async def test_a_log_line_for_every_call_says_what_and_how_it_ended(
    tools: Toolset, sink: Sink, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rapkit.calls")

    @tools.tool
    def fail() -> None:
        """Fail."""
        raise ToolError("No.")

    async with serving(tools) as server:
        for operation in ("echo", "fail", "no_such"):
            message = invocation(sink.url, operation)
            await server.invoke(message)
            await sink.result(message["id"])
        await server.quiet()

    lines = [record.__dict__ for record in caplog.records if record.getMessage() == "call finished"]
    told = [(line["operation"], line["outcome"], line["caller"], line["thread_id"]) for line in lines]
    assert told == [
        ("echo", "ok", "local", "thread_1"),
        ("fail", "error", "local", "thread_1"),
        ("no_such", "error", "local", "thread_1"),
    ]
    assert all(line["call_id"].startswith("call_") and line["seconds"] >= 0 for line in lines)


async def test_the_metrics_count_what_came_in_what_was_done_and_what_was_sent(tools: Toolset, sink: Sink) -> None:
    async with serving(tools) as server:
        message = invocation(sink.url)
        for each in (message, message, invocation(sink.url, "no_such"), invocation(sink.url, toolset_version="old")):
            await server.invoke(each)
        await server.invoke({"no": "invocation"})
        await sink.received(2)
        await server.quiet()
        page = await server.get("/metrics")

    found = {
        (sample.name, *(value for name, value in sorted(sample.labels.items()) if name != "toolset")): sample.value
        for family in text_string_to_metric_families(page.body.decode())
        for sample in family.samples
    }
    assert page.headers["content-type"].startswith("text/plain; version=0.0.4")
    for outcome, count in (("accepted", 2), ("repeated", 1), ("stale", 1), ("refused", 1), ("busy", 0)):
        assert found["rapkit_invocations_total", outcome] == count
    assert found["rapkit_calls_total", "echo", "ok"] == 1
    assert found["rapkit_calls_total", "unknown", "error"] == 1
    assert found["rapkit_call_duration_seconds_count", "echo"] == 1
    assert found["rapkit_callback_attempts_total", "callback", "delivered"] == 2
    assert found["rapkit_handlers_running",] == 0


async def test_metrics_are_for_callers(tools: Toolset) -> None:
    tools.tokens = {"prometheus": "p" * 20}
    async with serving(tools) as server:
        assert (await server.get("/metrics")).status == 401
        assert (await server.get("/metrics", Authorization=f"Bearer {'p' * 20}")).status == 200


async def test_without_a_sdk_the_trace_is_passed_on(tools: Toolset, sink: Sink) -> None:
    async with serving(tools) as server:
        message = invocation(sink.url)
        body = json.dumps(message).encode()
        assert (await server.request("POST", "/invoke", body, {"traceparent": TRACEPARENT})).status == 200
        assert (await sink.result(message["id"])).headers["traceparent"] == TRACEPARENT

        for wrong in (None, "", "00-0-0-00", "x" * 5000):
            message = invocation(sink.url)
            body = json.dumps(message).encode()
            assert (await server.request("POST", "/invoke", body, {"traceparent": wrong})).status == 200
            assert "traceparent" not in (await sink.result(message["id"])).headers


class TracedServer:
    """A server with an SDK, in a process of its own, because a process has one SDK for good."""

    def __init__(self, folder: Path) -> None:
        self._spans = folder / "spans.jsonl"
        port = free_port()
        command = [sys.executable, str(Path(__file__).parent / "traced_tools.py"), str(port)]
        self.process = Process("traced", command, folder, port)

    async def post(self, path: str, message: object) -> Reply:
        body = json.dumps(message).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.process.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\ntraceparent: {TRACEPARENT}\r\n\r\n"
        )
        return await exchange(self.process.port, head.encode() + body)

    async def delivered(self) -> None:
        """Return when a callback has been delivered, and that is stored: else it is sent again after a crash."""
        head = f"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{self.process.port}\r\n\r\n".encode()
        async with asyncio.timeout(60):
            while b'outcome="delivered"' not in (await exchange(self.process.port, head)).body:
                await asyncio.sleep(0.02)

    async def spans(self, count: int) -> list[dict[str, Any]]:
        """All spans that have ended, once there are so many."""
        async with asyncio.timeout(60):
            while True:
                lines = self._spans.read_text().splitlines() if self._spans.exists() else []
                if len(lines) >= count:
                    return [json.loads(line) for line in lines]
                await asyncio.sleep(0.02)


async def test_a_trace_goes_on_through_the_call_its_wait_a_crash_and_its_callbacks(tmp_path: Path, sink: Sink) -> None:
    server = TracedServer(tmp_path)
    server.process.start()
    try:
        await server.process.ready()
        message = invocation(sink.url, "ask")
        assert (await server.post("/invoke", message)).status == 200
        choice = await message_of(sink, "user_choice", message["id"])
        await server.spans(3)
        await server.delivered()
        await server.process.kill()
        server.process.start()
        await server.process.ready()
        answered = {"id": message["id"], "selected": 1}
        assert (await server.post(urlsplit(choice.message["response_url"]).path, answered)).status == 200
        result = await message_of(sink, "tool_result", message["id"])
        spans = await server.spans(6)
    finally:
        await server.process.kill()

    assert {span["context"]["trace_id"] for span in spans} == {f"0x{TRACE}"}
    calls = [span for span in spans if span["name"] == "rap.call ask"]
    within = [span for span in spans if span["name"] == "within"]
    callbacks = [span for span in spans if span["name"] == "rap.callback"]
    assert [span["parent_id"] for span in calls] == [f"0x{PARENT}"] * 2
    assert [span["attributes"]["rap.outcome"] for span in calls] == ["suspended", "ok"]
    assert [span["attributes"]["rap.call_id"] for span in calls] == [message["id"]] * 2
    ids = [span["context"]["span_id"] for span in calls]
    assert [span["parent_id"] for span in within] == ids
    assert sorted(span["parent_id"] for span in callbacks) == sorted(ids)
    sent = [post.headers["traceparent"].split("-") for post in (choice, result)]
    assert [f"0x{span}" for _, _, span, _ in sent] == [span["context"]["span_id"] for span in callbacks]
    assert {trace for _, trace, _, _ in sent} == {TRACE}
