"""One slice of a thread: load, step, commit, act. No state of the thread is kept in memory afterwards (RUN-8)."""

import asyncio
import contextlib
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from rapkit.errors import Fenced, StoreError
from rapkit.kernel.effects import Invoke, Step
from rapkit.kernel.incoming import ChooseFor, Correction, Incoming, SetAside, TimerDue, Undelivered
from rapkit.kernel.missing_toolsets import note_toolsets
from rapkit.kernel.receive import receive
from rapkit.kernel.reply import worker_lost
from rapkit.kernel.thread import Pending, Thread, load_thread
from rapkit.mailbox import Claim, Commit, Mail
from rapkit.protocol import UserChoice, ViewUpdate
from rapkit.runtime import audit_log, mail_codec
from rapkit.runtime.broadcast import Changed, Reset
from rapkit.runtime.commit_builder import CommitBuilder, origins
from rapkit.runtime.history import find_event, read_view
from rapkit.runtime.model_completion import Interrupted, ModelCompletion
from rapkit.runtime.services import AgentServices
from rapkit.work import background
from rapkit.work.offload import offload
from rapkit.work.store_retry import retry_store_operation

_MOST_LOST_ATTEMPTS = 4
_PAUSE_WHEN_UNREADABLE = 3600.0
_PAUSE_WHEN_BROKEN = 5.0
_LARGEST_VIEW = 1024 * 1024

if TYPE_CHECKING:
    from rapkit.kernel.catalog import Catalog

log = logging.getLogger("rapkit.threads")


class Slice:
    """Runs one claim of a thread."""

    def __init__(self, services: AgentServices, claim: Claim) -> None:
        self._services = services
        self._claim = claim
        self._store = services.store
        self._commits = CommitBuilder(services.dispatch, partial(find_event, services.store, claim.box.id))
        self._limits = services.config.limits
        self._catalog: Catalog | None = None
        self._asking = ModelCompletion(services)

    async def run(self) -> None:
        """Run the slice. If another worker has the thread by now, nothing happened."""
        try:
            with self._services.tracing.slice(self._claim):
                await self._run()
        except Fenced as error:
            log.debug("%s", error)
        except asyncio.CancelledError:
            await self._give_back()
            raise
        except Interrupted:
            self._services.broadcast.publish(self._claim.box.id, Reset())
            await self._start_over(0.0)
        except _Unreadable as error:
            log.critical("%s", error)
            await self._put_off(_PAUSE_WHEN_UNREADABLE)
        except StoreError as error:
            # Not the thread's fault, nor its mail's: nothing is charged to them, however long it lasts.
            log.critical("thread %s cannot go on: %s", self._claim.box.id, error)
            await self._start_over(_PAUSE_WHEN_BROKEN)
        except Exception as error:
            # A mistake of ours. If it comes again and again, what brings it about is set aside.
            log.critical("thread %s cannot go on", self._claim.box.id, exc_info=error)
            await self._put_off(_PAUSE_WHEN_BROKEN)

    async def _run(self) -> None:
        thread = self._load()
        incoming, aside = await self._incoming(thread)
        now = self._services.clock.now()
        step = receive(thread, incoming, now, self._limits)
        thread_now = step.thread
        asks_at = thread_now.asks_at
        mail = {
            "consumed": [each.seq for each in self._claim.mail if each.seq not in aside],
            "set_aside": aside,
        }
        # What is set aside takes its attempts along: they are not the model's, which is asked in the next slice.
        if asks_at is None or asks_at > now or aside:
            await self._commit(thread, step, again_at=asks_at, **mail)
            return
        if self._claim.attempts > _MOST_LOST_ATTEMPTS:
            # Before anything is read that may be what ends us.
            await self._commit(thread, step, keep=True, charge=True, **mail)
            await self._commit(thread_now, worker_lost(thread_now, self._claim.attempts - 1, now, self._limits))
            return
        # What the model is shown and offered. Only this worker appends to the journal, so it can be read while we do.
        most = self._services.config.capacity.conversation
        reading = asyncio.create_task(read_view(self._store, thread, step, self._limits, most))
        finding = asyncio.create_task(self._services.toolsets.catalog(thread.root))
        try:
            if self._claim.mail or step.entries or step.effects:
                # What came is in the journal before the model is asked, whatever happens then (RUN-4). It is not said that we got on.
                await self._commit(thread, step, keep=True, charge=True, **mail)
            view = await reading
            self._catalog = catalog = await finding
        except BaseException:
            await background.end(reading, finding)
            raise
        if (noted := note_toolsets(thread_now, catalog, now, self._limits)) is not None:
            await self._commit(thread_now, noted, keep=True, charge=True)
            thread_now = noted.thread
        answer = await self._asking.ask(thread_now, view, catalog)
        await self._commit(thread_now, answer, again_at=self._again_at(answer.thread))

    def _load(self) -> Thread:
        try:
            return load_thread(self._claim.box.state)
        except ValueError as error:
            raise _Unreadable(f"The state of thread {self._claim.box.id} cannot be read: {error}") from None

    # What came

    async def _incoming(self, thread: Thread) -> tuple[list[Incoming], dict[int, str]]:
        """What is in the mail; and what is set aside of it, because it has ended too many workers already."""
        incoming: list[Incoming] = []
        aside: dict[int, str] = {}
        for mail in self._claim.mail:
            if min(mail.attempts, self._claim.attempts) > _MOST_LOST_ATTEMPTS:
                aside[mail.seq] = f"It was tried {mail.attempts - 1} times, and each time the process was lost."
                incoming.append(mail_codec.set_aside(mail, aside[mail.seq]))
                continue
            incoming.append(await self._read(thread, mail))
        # Timers come last: what has come is not given up because no worker ran in time.
        incoming += [TimerDue(key) for key in self._claim.timers]
        return incoming, aside

    async def _read(self, thread: Thread, mail: Mail) -> Incoming:
        message = await offload(len(mail.body), mail_codec.decode_mail, mail)
        match message:
            case Undelivered(stale=True):
                return await self._corrected(thread, message)
            case UserChoice():
                return await self._answerable(thread, message)
            case ChooseFor():
                return await self._permissible(thread, message)
            case ViewUpdate() if len(mail.body) > _LARGEST_VIEW:
                return SetAside("view_update", f"it has more than {_LARGEST_VIEW} bytes")
        return message

    async def _answerable(self, thread: Thread, message: UserChoice) -> Incoming:
        """A question whose answer goes to the tool's server, or nowhere."""
        call = thread.pending.get(message.id) or thread.subscriptions.get(message.id)
        if call is None:
            return message
        catalog = await self._services.toolsets.catalog(thread.root)
        url = self._services.dispatch.answer_url(call.server, catalog, message.response_url)
        if url is not None:
            return message.model_copy(update={"response_url": url})
        reason = "its response_url is none of the tool server's own"
        log.warning("a user_choice is refused: %s", reason, extra={"thread_id": thread.id, "call_id": message.id})
        return SetAside("user_choice", reason, message.id)

    async def _permissible(self, thread: Thread, message: ChooseFor) -> ChooseFor:
        """What the toolset says now about a call the user was asked about, perhaps long ago (INV-2, INV-3)."""
        call = thread.pending.get(message.call_id)
        if call is None or call.awaits != "permission":
            return message
        catalog = await self._services.toolsets.catalog(thread.root)
        return replace(message, problem=_problem(call, catalog))

    async def _corrected(self, thread: Thread, message: Undelivered) -> Undelivered:
        """What the toolset, fetched again, says about a call that was refused as stale (DIS-10).

        The call is sent again only as a corrected request, with another version: an equal one would be the retry of a 4xx (INV-5).
        """
        call = thread.pending.get(message.call_id)
        if call is None:
            return message
        self._catalog = catalog = await self._services.toolsets.refresh(thread.root, call.server)
        if problem := _problem(call, catalog):
            return replace(message, correction=Correction(problem))
        problem = f"{message.problem}: it refuses the call as outdated"
        document = catalog.document(call.server)
        if document is None or document.version == message.version:
            return replace(message, problem=f"{problem}, but offers no newer toolset")
        return replace(message, problem=problem, correction=Correction())

    # The model

    def interrupt(self) -> None:
        """Let the model be: the thread is to see its mail first."""
        self._asking.interrupt()

    def _again_at(self, thread: Thread) -> float | None:
        """The next slice follows at once if the model is to be asked again: one completion a slice."""
        return None if thread.asks_at is None else max(thread.asks_at, self._services.clock.now())

    # The store

    async def _made(self, before: Thread, step: Step, **rest: object) -> Commit:
        if self._catalog is None and any(isinstance(effect, Invoke) for effect in step.effects):
            self._catalog = await self._services.toolsets.catalog(step.thread.root)
        return await self._commits.make(before, step, self._catalog, **rest)

    async def _commit(self, before: Thread, step: Step, **rest: object) -> None:
        """Commit; then tell the watchers. What fails is reported, and nothing is built on it (RUN-5).

        A commit that ends the claim is written however often it takes: if it was written after all, the repetition is fenced. One that
        keeps it could be written twice, so that we start over from what is stored.
        """
        commit = await self._made(before, step, **rest)
        if commit.keep:
            await self._try_commit(commit)
        else:
            await retry_store_operation(lambda: self._try_commit(commit))
        audit_log.log_step(before, step)
        if commit.entries or commit.status:
            self._services.broadcast.publish(self._claim.box.id, Changed())

    async def _try_commit(self, commit: Commit) -> None:
        outbox_sender = self._services.outbox_sender
        # If all its POSTs go to one place, the outbox sender has them as soon as they are stored.
        with outbox_sender.reserve_for(commit.outgoing if len(origins(commit.outgoing)) == 1 else ()) as sender:
            since = asyncio.get_running_loop().time()
            outbox_sender.submit(await self._store.commit(self._claim, commit, sender), since)

    async def _give_back(self) -> None:
        """This worker is told to stop: another may take the thread at once.

        It is not counted against it, unless the model was being asked: one that takes longer than there ever is time for would be asked,
        and paid, for ever.
        """
        commit = Commit(again_at=self._services.clock.now(), charge=self._asking.began)
        with contextlib.suppress(StoreError):
            await asyncio.shield(self._store.commit(self._claim, commit))

    async def _start_over(self, pause: float) -> None:
        """Begin again with what is stored, after a while, as if we had never begun (RUN-3)."""
        if pause:
            await self._services.clock.sleep(pause)
        with contextlib.suppress(Fenced):
            commit = Commit(again_at=self._services.clock.now())
            await retry_store_operation(lambda: self._store.commit(self._claim, commit))

    async def _put_off(self, pause: float) -> None:
        """What is stored makes no sense to us, or we make a mistake: nothing is done (RUN-3), and the thread is tried again later."""
        commit = Commit(again_at=self._services.clock.now() + pause, charge=True)
        with contextlib.suppress(Fenced):
            await retry_store_operation(lambda: self._store.commit(self._claim, commit))


def _problem(call: Pending, catalog: "Catalog") -> str | None:
    """Why a call that was made for an older toolset does not fit this one, if it does not."""
    offer = catalog.offers.get(call.name)
    if offer is None or offer.server != call.server:
        return "It is not offered any more."
    problems = offer.checker.problems(call.arguments)
    return f"The arguments do not fit any more: {'; '.join(problems)}." if problems else None


class _Unreadable(StoreError):
    """The stored state of a thread cannot be read."""
