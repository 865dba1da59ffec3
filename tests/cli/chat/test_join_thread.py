"""Coming to a thread that exists already."""

from typing import Any

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.chat.block import plain
from rapkit.cli.chat.join_thread import join


class Journal(AgentApi):
    """An agent whose one thread has these entries."""

    def __init__(self, entries: list[dict[str, Any]]) -> None:
        super().__init__("http://127.0.0.1:1")
        self._entries = [{"seq": seq, "at": 1_763_270_400.0, **entry} for seq, entry in enumerate(entries, start=1)]

    def get(self, path: str, **query: Any) -> Any:
        if path.endswith("/history"):
            return {"entries": self._entries[query["cursor"] :], "next_cursor": None}
        empty: dict[str, Any] = {"pending_calls": [], "subscriptions": [], "choices": [], "oauth": [], "children": []}
        return {"status": "idle", "length": len(self._entries), "views": {}, **empty}


def test_the_last_lines_are_shown() -> None:
    _, blocks, after = join(Journal([{"kind": "user", "text": f"line {n}"} for n in range(1, 51)]), "thr_1")
    text = plain(blocks, 80)
    assert text.startswith("— thread thr_1, idle; 20 earlier lines are not shown —\n\n> line 21\n")
    assert text.endswith("\n> line 50")
    assert after == "50"


def test_there_is_something_to_see_even_if_a_tool_has_shown_its_progress_ever_since() -> None:
    progress = [{"kind": "view", "view_type": "progress"}] * 100
    _, blocks, after = join(Journal([{"kind": "user", "text": "Brew tea"}, *progress]), "thr_1")
    assert plain(blocks, 80) == "— thread thr_1, idle —\n\n> Brew tea"
    assert after == "101"

    _, blocks, after = join(Journal(progress), "thr_1")
    assert plain(blocks, 80) == "— thread thr_1, idle —"
    assert join(Journal([]), "thr_1")[2] == "0"
