"""What a thread is shown of journals that are kept in memory, as the runtime reads it from a store."""

from collections.abc import Sequence

from rapkit.kernel.entries import SHOWN, JournalEntry, Released, Summary
from rapkit.kernel.projection import Numbered, Stretch
from rapkit.kernel.thread import Thread


def own_stretch(journal: Sequence[JournalEntry], upto: int | None = None) -> Stretch:
    """A journal up to a line, behind the last summary there is by then."""
    lines = [Numbered(seq, entry) for seq, entry in enumerate(journal, 1)][:upto]
    summary = next((line.entry for line in reversed(lines) if isinstance(line.entry, Summary)), None)
    if summary is None:
        return Stretch(lines)
    kept = [line for line in lines if line.seq > summary.upto]
    wanted = {seq for line in kept if isinstance(line.entry, Released) for seq in line.entry.seqs}
    early = [line for line in lines if line.seq <= summary.upto and line.seq in wanted]
    return Stretch(kept, summary=summary, early=early)


def seen(thread: Thread, journal: Sequence[JournalEntry]) -> list[Numbered]:
    """The lines for models that are not summarised."""
    since = thread.summary.upto if thread.summary else 0
    lines = [Numbered(seq, entry) for seq, entry in enumerate(journal, 1)]
    return [line for line in lines if line.seq > since and line.entry.kind in SHOWN]
