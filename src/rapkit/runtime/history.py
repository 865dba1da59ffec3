"""The journal of a thread as a model is shown it: read from the store, in a window, together with what it inherits."""

from rapkit.errors import StoreError
from rapkit.kernel.conversation import Conversation
from rapkit.kernel.effects import Step
from rapkit.kernel.entries import SHOWN, Happened, load_entry
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.projection import Numbered, Stretch, project
from rapkit.kernel.thread import Inherited, Thread, load_thread
from rapkit.mailbox import Entry, Store


async def conversation_of(store: Store, before: Thread, step: Step, limits: ThreadLimits) -> Conversation:
    """What the model is shown after a step: the last lines that are for models, about a window of them, those of the step included."""
    window = limits.window
    lines = await _lines(store, Inherited(before.id, before.length), _how_many(before.shown, window))
    lines += [Numbered(seq, entry) for seq, entry in enumerate(step.entries, before.length + 1)]
    stretches = [Stretch(lines)]
    left = window - len(lines)
    inherits = before.inherits
    while inherits is not None and left > 0:
        lines = await _lines(store, inherits, left)
        stretches.insert(0, Stretch(lines, inherited=True))
        left -= len(lines)
        inherits = await _inherited_by(store, inherits.thread_id)
    return project(stretches, step.thread, answer_chars=limits.answer_chars, total_chars=limits.total_chars)


def _how_many(shown: int, window: int) -> int:
    """A window or up to half as much again: so its beginning moves seldom, and providers can cache what comes first."""
    return shown if shown <= window else window + (shown - window) % max(1, window // 2)


async def find_event(store: Store, thread_id: str, seq: int) -> Happened:
    """An event of a journal by its number."""
    for entry in await store.entries(thread_id, after=seq - 1, limit=1):
        if isinstance(event := load_entry(entry.body), Happened):
            return event
    raise StoreError(f"The journal of thread {thread_id} has no event {seq}.")


async def _lines(store: Store, part: Inherited, most: int) -> list[Numbered]:
    return list(map(_numbered, await store.recent(part.thread_id, most, before=part.upto + 1, kinds=SHOWN)))


def _numbered(entry: Entry) -> Numbered:
    try:
        return Numbered(entry.seq, load_entry(entry.body))
    except ValueError as error:
        raise StoreError(f"An entry of the journal cannot be read: {error}") from None


async def _inherited_by(store: Store, thread_id: str) -> Inherited | None:
    box = await store.box(thread_id)
    return None if box is None else load_thread(box.state).inherits
