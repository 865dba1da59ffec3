"""Child threads that the model spawned: tasks, messages and reports between a thread and its direct parent or children."""

from dataclasses import replace

from rapkit.kernel.effects import Spawn, Write
from rapkit.kernel.entries import ChildEnded, ChildMade, ParentSaid, Reported, Tasked
from rapkit.kernel.events import make_event_children, next_child
from rapkit.kernel.incoming import ChildClosed, ChildReport, CloseThread, ParentMessage, Task
from rapkit.kernel.step_builder import StepBuilder, without
from rapkit.kernel.thread import SpawnedChild

_BY_PARENT = "its parent thread"
_LONGEST_BRIEF = 1000


def task_summary(task: str) -> str:
    """A task as it is kept in the state of both threads, which is written at every step; their journals have the whole."""
    return task if len(task) <= _LONGEST_BRIEF else f"{task[:_LONGEST_BRIEF]}…"


# In the parent


def spawn(draft: StepBuilder, call_id: str, task: str, upto: int) -> str:
    """Make a child with a task, and with our history up to a line; its id."""
    child = next_child(draft, upto, allowed=draft.thread.allowed, task=task_summary(task), owes_report=True)
    draft.change(spawned={**draft.thread.spawned, child.id: SpawnedChild(task_summary(task))})
    draft.journal(ChildMade(child.id, call_id, task=task))
    draft.do(Spawn(child, task))
    return child.id


def send_to_child(draft: StepBuilder, child: str, call_id: str, text: str) -> None:
    """Say something to a child."""
    _expect(draft, child, owes_report=True)
    draft.do(Write(child, ParentMessage(draft.thread.id, text), once=f"parent/{call_id}"))


def close_child(draft: StepBuilder, child: str) -> None:
    """Have a child closed. It is ours until it says that it is."""
    if child in draft.thread.spawned:
        spawned = replace(draft.thread.spawned[child], closing=True)
        draft.change(spawned={**draft.thread.spawned, child: spawned})
    draft.do(Write(child, CloseThread(_BY_PARENT), once="close"))


def receive_report(draft: StepBuilder, report: ChildReport) -> None:
    """A child has something to say: the model is asked."""
    thread = draft.thread
    if report.thread_id not in thread.spawned and report.thread_id not in thread.children:
        draft.ignore("report", "no such child is open")
        return
    if report.thread_id in thread.spawned:
        spawned = replace(thread.spawned[report.thread_id], usage=report.usage)
        draft.change(spawned={**thread.spawned, report.thread_id: spawned})
    else:
        draft.change(requests=0)  # it speaks of an event, which came from outside
    _hear(draft, report.thread_id, report.text)


def receive_child_closed(draft: StepBuilder, closed: ChildClosed) -> None:
    """A child is gone: there is room for the next event that waits. Of one the model has made it is told, unless it wanted that."""
    thread = draft.thread
    child = closed.thread_id
    if child in thread.children:
        draft.change(usage_of_closed=thread.usage_of_closed + closed.usage)
        draft.change(children=tuple(each for each in thread.children if each != child))
        draft.journal(ChildEnded(child, closed.by))
        if closed.report is not None:
            _hear(draft, child, closed.report, closed=True)
        make_event_children(draft)
    elif child in thread.spawned:
        spawned = thread.spawned[child]
        draft.journal(ChildEnded(child, closed.by))
        if closed.report is not None or not spawned.closing:
            _hear(draft, child, closed.report or f"It was closed by {closed.by or 'somebody'}.", closed=True)
        draft.change(spawned=without(thread.spawned, child), usage_of_closed=thread.usage_of_closed + closed.usage)
    else:
        draft.ignore("child_closed", "no such child is open")


def _hear(draft: StepBuilder, child: str, text: str, *, closed: bool = False) -> None:
    spawned = draft.thread.spawned.get(child)
    draft.journal(Reported(_next_id(draft), child, text, spawned.task if spawned else "", closed))
    _expect(draft, child, owes_report=False)
    draft.wake()


def _expect(draft: StepBuilder, child: str, *, owes_report: bool) -> None:
    spawned = draft.thread.spawned
    if child in spawned:
        draft.change(spawned={**spawned, child: replace(spawned[child], owes_report=owes_report)})


# In the child


def receive_task(draft: StepBuilder, task: Task) -> None:
    """What this thread was made for."""
    draft.journal(Tasked(_next_id(draft), task.parent, task.text))
    draft.wake()


def receive_parent_message(draft: StepBuilder, message: ParentMessage) -> None:
    """The parent says something, and wants to hear something."""
    draft.journal(ParentSaid(_next_id(draft), message.parent, message.text))
    draft.change(owes_report=bool(draft.thread.task), told_of_stop=False)
    draft.wake()


def report(draft: StepBuilder, text: str, *, still_owes: bool = False) -> None:
    """Say something to the parent."""
    thread = draft.thread
    assert thread.parent is not None
    draft.change(owes_report=thread.owes_report and still_owes)
    message = ChildReport(thread.id, text, thread.usage_of_all)
    draft.do(Write(thread.parent, message, once=f"report/{thread.id}/{_next_id(draft)}"))


def _next_id(draft: StepBuilder) -> str:
    """An id for the model, which no call in its conversation has, nor will have."""
    draft.change(calls_made=draft.thread.calls_made + 1)
    return f"note_{draft.thread.calls_made}"
