"""The budget of a thread: what it has used, its limits, and grants of more."""

from collections.abc import Callable
from dataclasses import dataclass

from rapkit.kernel.entries import GrantedEntry
from rapkit.kernel.incoming import Grant
from rapkit.kernel.limits import ThreadLimits
from rapkit.kernel.step_builder import StepBuilder
from rapkit.kernel.thread import Granted, Thread


@dataclass(frozen=True, slots=True)
class BudgetAccount:
    """One budget of a thread: its name, how much was used, and its limit; None is unlimited."""

    name: str
    used: float
    limit: float | None
    spoken: Callable[[float], str]

    @property
    def is_used_up(self) -> bool:
        """Whether there is nothing left."""
        return self.limit is not None and self.used >= self.limit


def accounts(thread: Thread, limits: ThreadLimits) -> tuple[BudgetAccount, ...]:
    """Everything a thread may use so much of, with what it was granted on top."""
    usage, granted = thread.usage_of_all, thread.granted
    return (
        BudgetAccount(
            "slices", usage.requests, _sum(limits.slices, granted.slices), lambda n: f"{n:,.0f} slice{'s' * (n != 1)}"
        ),
        BudgetAccount(
            "tokens",
            usage.input_tokens + usage.output_tokens,
            _sum(limits.tokens, granted.tokens),
            lambda n: f"{n:,.0f} tokens",
        ),
        BudgetAccount(
            "cost", usage.cost, _sum(limits.cost, granted.cost), lambda n: f"${n:,.2f}" if n >= 1 else f"${n:.4g}"
        ),
    )


def used_up(thread: Thread, limits: ThreadLimits) -> str | None:
    """Why the thread may not ask the model any more, in words for a person, if it may not."""
    if 0 < limits.requests_per_message <= thread.requests:
        return (
            f"The model was asked {thread.requests:,} times without anything new from outside, and the limit (requests_per_message) is "
            f"{limits.requests_per_message:,}. Write to the thread to go on."
        )
    for each in accounts(thread, limits):
        if each.limit is not None and each.is_used_up:
            return (
                f"The thread has used {each.spoken(each.used)}, its children included, and its budget is "
                f"{each.spoken(max(0.0, each.limit))}. Grant it more to go on."
            )
    return None


def receive_grant(draft: StepBuilder, grant: Grant) -> None:
    """A client grants the thread more. If the thread waited for that, it resumes."""
    thread = draft.thread
    if grant != Grant():
        draft.change(granted=thread.granted + Granted(grant.slices, grant.tokens, grant.cost), told_of_stop=False)
        draft.journal(GrantedEntry(grant.slices, grant.tokens, grant.cost))
    if thread.parked is not None and thread.wants_model:
        # Failures from before are forgotten: it goes on because a person wants it to.
        draft.change(parked=None, retry_at=0.0, failures=0, requests=0)


def _sum(limit: float | None, granted: float) -> float | None:
    return None if limit is None else limit + granted
