"""The least that a durable wake in Python can do: grouped SQLite commits of one state row and one journal row, no framework.

The result is committed as mail, then the thread is loaded, and its new state, the journal entry and the next call are committed in one
transaction; when the call was delivered, it is deleted from the outbox. The model and the tool server are functions, as in `wakes.py`.
"""

import asyncio
import time
from collections import deque
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from benchmarks.figures import Figures
from benchmarks.grouped_commits import GroupedCommits

WINDOW = 10
SCHEMA = """
CREATE TABLE threads (id INTEGER PRIMARY KEY, state BLOB);
CREATE TABLE journal (thread INTEGER, seq INTEGER, entry BLOB, PRIMARY KEY (thread, seq)) WITHOUT ROWID;
CREATE TABLE mail (thread INTEGER, call INTEGER, body BLOB, PRIMARY KEY (thread, call)) WITHOUT ROWID;
CREATE TABLE outbox (thread INTEGER, call INTEGER, body BLOB, PRIMARY KEY (thread, call)) WITHOUT ROWID
"""


async def measure(folder: Path, seconds: float, threads: int, at_once: int) -> Figures:
    """Wake so many threads in turn for so long, a number of them at once."""
    figures = Figures()
    async with GroupedCommits(folder / "floor.db", SCHEMA) as commits:
        calls: deque[dict[str, Any]] = deque()
        for number in range(threads):
            await commits.commit(
                ("INSERT INTO threads VALUES (?, ?)", (number, to_json({"seq": 0, "said": ["Begin."]})))
            )
            calls.append({"thread": number, "call": 0})
        begun = time.perf_counter()

        async def wake_some() -> None:
            while time.perf_counter() - begun < seconds:
                await _wake(commits, calls)
                figures.calls += 1

        await asyncio.gather(*(wake_some() for _ in range(at_once)))
        figures.seconds = time.perf_counter() - begun
    return figures


async def _wake(commits: GroupedCommits, calls: deque[dict[str, Any]]) -> None:
    call = calls.popleft()
    thread, number = call["thread"], call["call"]
    result = to_json({"type": "tool_result", "group_id": thread, "id": number, "text": "42"})
    await commits.commit(("INSERT OR IGNORE INTO mail VALUES (?, ?, ?)", (thread, number, result)))

    ((stored,),) = commits.reader.execute("SELECT state FROM threads WHERE id = ?", (thread,)).fetchall()
    assert isinstance(stored, bytes)
    state = from_json(stored)
    entry = from_json(result)
    seq = state["seq"] + 1
    said = [*state["said"], entry["text"], "call next()"][-WINDOW:]  # what a model that answers at once says
    following = to_json({"thread": thread, "call": number + 1})
    await commits.commit(
        ("UPDATE threads SET state = ? WHERE id = ?", (to_json({"seq": seq, "said": said}), thread)),
        ("INSERT INTO journal VALUES (?, ?, ?)", (thread, seq, to_json(entry))),
        ("DELETE FROM mail WHERE thread = ? AND call = ?", (thread, number)),
        ("INSERT INTO outbox VALUES (?, ?, ?)", (thread, number + 1, following)),
    )
    calls.append(from_json(following))  # delivered
    await commits.commit(("DELETE FROM outbox WHERE thread = ? AND call = ?", (thread, number + 1)))
