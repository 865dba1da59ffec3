"""Read a thread's journal from the store as the model is shown it, within the window and with inherited entries."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rapkit.errors import StoreError
from rapkit.kernel.compaction import CHARS_PER_TOKEN, Cut, cut, lines_since
from rapkit.kernel.conversation import Conversation
from rapkit.kernel.effects import Step
from rapkit.kernel.entries import SHOWN, Answered, Happened, JournalEntry, Released, Summary, dump_entry, load_entry
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import Numbered, Stretch, content_of, project
from rapkit.kernel.thread import Inherited, Thread, load_thread
from rapkit.mailbox import Entry, Store
from rapkit.work.offload import offload

_SUMMARY = frozenset(("summary",))
_MOST_EARLY = 100
_MOST_WINDOWS = 20
_USABLE = 0.9
_PICTURE = 6000


@dataclass(frozen=True, slots=True)
class JournalView:
    """What a thread's model is shown. The last of the `stretches` is the thread's own; `sizes` are those of its lines, in characters.

    `inherited` is the size of the others.
    """

    thread: Thread
    stretches: tuple[Stretch, ...]
    sizes: tuple[int, ...]
    inherited: int

    @property
    def tokens(self) -> int:
        """How many tokens it is, about: as many as the last completion took, or more if much has come since."""
        return max(self._size // CHARS_PER_TOKEN, self.thread.context)

    @property
    def _size(self) -> int:
        return sum(self.sizes) + self.inherited

    def conversation(self, limits: ThreadLimits, room: int) -> Conversation:
        """All of it, for the model to go on with, as far as there is room for so many tokens."""
        return self._project(self.stretches, self.thread, limits, room)

    def cut(self, limits: ThreadLimits, room: int) -> Cut | None:
        """Where it can be cut, to put a summary in the place of what is before; None if that would change nothing."""
        characters = room * self._size // max(1, self.tokens)  # as long as tokens are here
        where = cut(self.stretches[-1].lines, self.sizes, limits, characters)
        summary = self.thread.summary
        inherits = self.thread.inherits is not None and summary is None
        return where if inherits or where.upto > (summary.upto if summary else 0) else None

    def before(self, where: Cut, limits: ThreadLimits, room: int) -> Conversation:
        """What is to be summed up."""
        *others, own = self.stretches
        own = replace(own, lines=[line for line in own.lines if line.seq <= where.upto])
        return self._project((*others, own), None, limits, room)

    def _project(
        self, stretches: tuple[Stretch, ...], known: Thread | None, limits: ThreadLimits, room: int
    ) -> Conversation:
        most = min(limits.total_chars, int(_USABLE * room * CHARS_PER_TOKEN))
        # One text that is as long as all there is room for would be refused as often as it is shown.
        return project(stretches, known, answer_chars=min(limits.answer_chars, most // 2), total_chars=most)


async def read_view(
    store: Store, before: Thread, step: Step, limits: ThreadLimits, most_bytes: int | None = None
) -> JournalView:
    """What the model is shown after a step: the last lines that are for models, about a window of them, those of the step included.

    Lines that are stored are left out, the oldest first, if they would take more than `most_bytes`.
    """
    thread = step.thread
    own = Inherited(before.id, before.length)
    since = before.summary.upto if before.summary else 0
    entries = await _entries(store, own, _how_many(thread, lines_since(before), limits), since, most_bytes)
    lines = await _lines(entries)
    sizes = _sizes(entries, lines)
    lines += [Numbered(seq, entry) for seq, entry in enumerate(step.entries, before.length + 1)]
    sizes += tuple(_size(entry, len(dump_entry(entry))) for entry in step.entries)
    summary = None if before.summary is None else await _summary_at(store, before.id, before.summary.seq)
    stretches = [Stretch(lines, summary=summary, early=await _early(store, before.id, lines))]
    left = (2 if limits.compaction else 1) * limits.window - len(lines)
    inherited = 0
    inherits = before.inherits if summary is None else None
    while inherits is not None and left > 0:
        stretch, size = await _inherited(store, inherits, left, most_bytes)
        stretches.insert(0, stretch)
        inherited += size
        left -= len(stretch.lines)
        inherits = await _inherited_by(store, inherits.thread_id) if stretch.summary is None else None
    return JournalView(thread, tuple(stretches), sizes, inherited)


def _how_many(thread: Thread, shown: int, limits: ThreadLimits) -> int:
    """How many of the lines that are not summarised are shown.

    With compaction that is all of them, as far as that can be borne: they are summed up now if they are too many, and what the model is not
    shown then would be lost. Where no summary can be made it is twice the window at most. Without compaction it is a window or up to half
    as much again: so its beginning moves seldom, and providers can cache what comes first.
    """
    window = limits.window
    if limits.compaction:
        return min(shown, (2 if thread.shown < thread.compact_after else _MOST_WINDOWS) * window)
    return shown if shown <= window else window + (shown - window) % max(1, window // 2)


async def _inherited(store: Store, part: Inherited, most: int, most_bytes: int | None) -> tuple[Stretch, int]:
    """A part of another thread's journal, as that thread saw it then, and its size: what it has summed up since does not count."""
    found = await store.recent(part.thread_id, 1, before=part.upto + 1, kinds=_SUMMARY)
    summary = _read_summary(found[0]) if found else None
    entries = await _entries(store, part, most, summary.upto if summary else 0, most_bytes)
    lines = await _lines(entries)
    early = await _early(store, part.thread_id, lines)
    return Stretch(lines, inherited=True, summary=summary, early=early), sum(_sizes(entries, lines))


def _sizes(entries: Sequence[Entry], lines: Sequence[Numbered]) -> tuple[int, ...]:
    return tuple(_size(line.entry, len(entry.body)) for entry, line in zip(entries, lines, strict=True))


def _size(entry: JournalEntry, stored: int) -> int:
    """About how many characters a model is shown of a line that takes so many bytes.

    A picture is a few pages to it, however large it is, and what is for people alone is nothing.
    """
    if isinstance(entry, Answered) and (entry.content or entry.display_as):
        return sum(len(item.text) if item.type == "text" else _PICTURE for item in content_of(entry))
    return stored


async def find_event(store: Store, thread_id: str, seq: int) -> Happened:
    """An event of a journal by its number."""
    for entry in await store.entries(thread_id, after=seq - 1, limit=1):
        if isinstance(event := load_entry(entry.body), Happened):
            return event
    raise StoreError(f"The journal of thread {thread_id} has no event {seq}.")


async def _early(store: Store, thread_id: str, lines: Collection[Numbered]) -> list[Numbered]:
    """Events that came too early, so early that their lines are not among these, which say that they are to be shown."""
    known = {line.seq for line in lines}
    wanted = [seq for line in lines if isinstance(line.entry, Released) for seq in line.entry.seqs if seq not in known]
    return [Numbered(seq, await find_event(store, thread_id, seq)) for seq in wanted[-_MOST_EARLY:]]


async def _entries(store: Store, part: Inherited, most: int, since: int, most_bytes: int | None) -> list[Entry]:
    entries = await store.recent(part.thread_id, most, before=part.upto + 1, kinds=SHOWN, most_bytes=most_bytes)
    return [entry for entry in entries if entry.seq > since]


async def _summary_at(store: Store, thread_id: str, seq: int) -> Summary:
    entries = await store.entries(thread_id, after=seq - 1, limit=1)
    if not entries:
        raise StoreError(f"The journal of thread {thread_id} has no summary {seq}.")
    return _read_summary(entries[0])


def _read_summary(entry: Entry) -> Summary:
    summary = _numbered(entry).entry
    if not isinstance(summary, Summary):
        raise StoreError(f"Entry {entry.seq} of a journal is no summary.")
    return summary


async def _lines(entries: Sequence[Entry]) -> list[Numbered]:
    return [await offload(len(entry.body), _numbered, entry) for entry in entries]


def _numbered(entry: Entry) -> Numbered:
    try:
        return Numbered(entry.seq, load_entry(entry.body))
    except ValueError as error:
        raise StoreError(f"An entry of the journal cannot be read: {error}") from None


async def _inherited_by(store: Store, thread_id: str) -> Inherited | None:
    box = await store.box(thread_id)
    return None if box is None else load_thread(box.state).inherits
