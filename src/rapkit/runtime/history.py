"""The journal of a thread as a model is shown it: read from the store, in a window, together with what it inherits."""

from rapkit.errors import StoreError
from rapkit.kernel.conversation import Conversation
from rapkit.kernel.effects import Step
from rapkit.kernel.entries import Happened, load_entry
from rapkit.kernel.projection import Numbered, Stretch, project
from rapkit.kernel.thread import Inherited, Thread, load_thread
from rapkit.mailbox import Entry, Store

_PAGE = 1000


async def conversation_of(store: Store, before: Thread, step: Step, window: int) -> Conversation:
    """What the model is shown after a step: the last entries, about `window` of them, those of the step included.

    The first one moves seldom, so that providers can cache what comes first.
    """
    lines = await _lines(store, Inherited(before.id, before.length), window)
    lines += [Numbered(seq, entry) for seq, entry in enumerate(step.entries, before.length + 1)]
    stretches = [Stretch(lines)]
    left = window - len(lines)
    inherits = before.inherits
    while inherits is not None and left > 0:
        lines = await _lines(store, inherits, left)
        stretches.insert(0, Stretch(lines, inherited=True))
        left -= len(lines)
        inherits = await _inherited_by(store, inherits.thread_id)
    return project(stretches, step.thread)


async def find_event(store: Store, thread_id: str, seq: int) -> Happened:
    """An event of a journal by its number."""
    for entry in await store.entries(thread_id, after=seq - 1, limit=1):
        if isinstance(event := load_entry(entry.body), Happened):
            return event
    raise StoreError(f"The journal of thread {thread_id} has no event {seq}.")


async def _lines(store: Store, part: Inherited, window: int) -> list[Numbered]:
    lines: list[Numbered] = []
    after = _first(part.upto, window)
    while after < part.upto:
        page = await store.entries(part.thread_id, after=after, limit=min(_PAGE, part.upto - after))
        if not page:
            break
        lines += map(_numbered, page)
        after = page[-1].seq
    return lines


def _first(length: int, window: int) -> int:
    """How many entries are left out: a multiple of half a window, so that the conversation has the same beginning for a long while."""
    step = max(1, window // 2)
    return max(0, (length - window) // step * step)


def _numbered(entry: Entry) -> Numbered:
    try:
        return Numbered(entry.seq, load_entry(entry.body))
    except ValueError as error:
        raise StoreError(f"An entry of the journal cannot be read: {error}") from None


async def _inherited_by(store: Store, thread_id: str) -> Inherited | None:
    box = await store.box(thread_id)
    return None if box is None else load_thread(box.state).inherits
