"""What `rapkit threads` makes of a tool that shows its progress."""

from typing import Any

from tests.cli.agent_home import Home
from tests.cli.command import eventually
from tests.cli.threads.test_show import moments, section


def test_progress_stands_beside_its_call_and_nowhere_else(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]
    for done in range(8):
        content = {"call_id": invocation["id"], "operation": "watch", "done": done, "total": 9, "note": "\x1b[2Jclouds"}
        home.call_back(invocation, type="view_update", view_type="progress", content=content)
    eventually(lambda: home.look(thread_id)["views"].get("progress", {}).get("done") == 7)

    out = home.run("threads", "show", thread_id).out
    assert section(out, "Pending")[1].startswith("    7/9 \ufffd[2Jclouds, the tool's turn, for ")
    assert "view" not in out.lower()
    assert [who for who, _ in moments(out)] == ["user", "model"]
    assert "Let me look." in home.run("threads", "list", "--limit", "1", columns=120).out

    others: list[Any] = [{"call_id": "call_9", "done": 1}, "half"]
    for other in others:
        home.call_back(invocation, type="view_update", view_type="progress", content=other)
        eventually(lambda other=other: home.look(thread_id)["views"]["progress"] == other)  # type: ignore[misc]
        assert section(home.run("threads", "show", thread_id).out, "Pending")[1].startswith("    the tool's turn, for ")
