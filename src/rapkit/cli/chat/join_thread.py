"""Join an existing thread."""

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.chat.block import Block
from rapkit.cli.chat.child_messages import with_last_words
from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.chat.journal_renderer import note, short_id
from rapkit.cli.threads.thread_lookup import path_of

_LAST_LINES = 30


def join(api: AgentApi, thread_id: str, *, asked_elsewhere: bool = True) -> tuple[DisplayedThread, list[Block], str]:
    """A thread as it is, its last entries to be printed, and where its stream goes on behind them. Blocks; `AgentRefused`, `AgentAway`."""
    path = path_of(thread_id)
    detail = api.get(path)
    lines = _LAST_LINES
    while True:
        skipped = max(0, detail["length"] - lines)
        displayed = DisplayedThread(thread_id, asked_elsewhere=asked_elsewhere)
        blocks, cursor = _read(api, path, displayed, skipped)
        if blocks or not skipped:
            break
        lines *= 10  # a tool has shown its progress, and nothing else was to be seen
    before = f"; {skipped} earlier lines are not shown" if skipped else ""
    displayed.status = detail["status"]
    title = note(f"— thread {short_id(thread_id)}, {displayed.status}{before} —")
    blocks = [title, *blocks, *displayed.look(detail)]
    if displayed.is_closed:
        blocks.append(note("It is closed: your next message begins a new thread."))
    return displayed, blocks, str(cursor)


def _read(api: AgentApi, path: str, displayed: DisplayedThread, cursor: int) -> tuple[list[Block], int]:
    """What to print of the entries from there to the last, and which that is."""
    blocks: list[Block] = []
    while True:
        page = api.get(f"{path}/history", cursor=cursor)
        for entry in page["entries"]:
            cursor = entry["seq"]
            blocks += displayed.transcript.blocks(with_last_words(api, entry))
        if page["next_cursor"] is None:
            return blocks, cursor
