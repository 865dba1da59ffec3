"""The script of the demo, chapter by chapter. It reports only what it has observed: in the API, in files, in the process table."""

import hashlib
import hmac
import json
import secrets
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from rapkit.cli.demo.chapters import CHAPTERS
from rapkit.cli.demo.demo_state import DemoState
from rapkit.cli.demo.failure import DemoFailed
from rapkit.cli.demo.participants import Participants
from rapkit.cli.demo.watch import Watch
from rapkit.cli.standard_streams import OutputLost
from rapkit.errors import RapkitError

BUILD = 42
SERVICE = "shop"
ALERT = "every tenth request takes more than a second"

_TO_READ = 4.0  # seconds that a chapter is shown at least, to a user who reads along
_TO_READ_A_QUESTION = 3.0
_ASLEEP = 1.5  # and that the agent is watched while it sleeps
_DEAD = 0.5
_QUIET = 0.4  # without a worker, before it counts as sleep: the next one may be on its way


class DemoScript:
    """Told once. `DemoFailed` if anything does not happen that should, and within `patience` seconds."""

    def __init__(
        self, demo_state: DemoState, participants: Participants, stopped: Callable[[], None], patience: float
    ) -> None:
        self._demo_state = demo_state
        self._participants = participants
        self._thread = participants.conversation(demo_state)
        self._watch = Watch(demo_state, participants, self._thread, stopped, patience)
        self._killed_at = 0.0
        self._progress_when_killed = 0.0

    def tell(self) -> None:
        """From the first process to the last."""
        self._demo_state.chapters = CHAPTERS
        self._demo_state.processes = self._participants.processes
        with self._demo_state.watched(self._participants.workers):
            for part in (self._start, self._ask, self._sleep, self._kill, self._come_back):
                self._chapter(part)
            for part in (self._alert, self._question, self._close):
                self._chapter(part)

    def _chapter(self, part: Callable[[], None]) -> None:
        self._demo_state.next_chapter()
        try:
            part()
        except OutputLost:
            raise
        except (RapkitError, OSError) as error:  # of a process that should have answered
            raise DemoFailed(f"{self._demo_state.chapter.title}: {error}", self._participants.tails()) from error
        self._watch.let_read(_TO_READ)

    # What happens

    def _start(self) -> None:
        self._start_all("starts")
        offered = self._participants.offered()
        for name, operations in offered.items():
            self._demo_state.say("note", name, f"offers {', '.join(operations)}")

    def _ask(self) -> None:
        seconds = 12 if self._demo_state.shown.paced else 6
        text = (
            f"Load-test build {BUILD} for {seconds} seconds. If it holds, and the next alert is harmless, roll it out."
        )
        on_disk = self._thread.begin(text)
        self._watch.until(
            "the model calls load_test, and the lab acknowledges it", lambda: self._thread.post("load_test")
        )
        self._watch.until("the model calls watch_alerts, and the ops server confirms it", self._watches)
        post = self._thread.post("load_test")
        assert post is not None
        self._demo_state.fact("request", f"on disk {_ms(on_disk)} after it was sent")
        self._demo_state.fact("slow call", f"load_test was acknowledged {_ms(post.seconds)} after it was made")

    def _sleep(self) -> None:
        workers = self._participants.workers
        self._watch.until("the agent sleeps: no worker is alive, one call is pending", self._is_asleep)
        self._watch.until("it sleeps on", lambda: workers.quiet_for() >= _ASLEEP)
        self._demo_state.say(
            "note", "agent", f"asleep: 0 workers for {workers.quiet_for():.1f} s, and a call is pending"
        )

    def _kill(self) -> None:
        demo_state, participants = self._demo_state, self._participants
        if not self._is_asleep() or self._thread.first("result", name="load_test"):
            raise DemoFailed("The agent should still sleep, waiting for load_test, and does not.")
        asleep, workers = participants.workers.quiet_for(), len(participants.workers.now)
        self._progress_when_killed = participants.progress()["seconds"]
        for process in participants.processes:
            demo_state.say("shell", "$", f"kill -9 {process.pid}", process.name)
            if process.kill() != signal.SIGKILL:
                raise DemoFailed(f"{process.name} should have ended by SIGKILL, and had ended before.", process.tail())
        self._killed_at = time.monotonic()
        if alive := [process.name for process in participants.processes if process.is_reachable()]:
            raise DemoFailed(f"All should be dead, but {', '.join(alive)} can still be reached.")
        demo_state.say("note", "disk", f"{_kb(participants.disk_use())} are all that is left")
        self._watch.until("nothing happens", lambda: time.monotonic() - self._killed_at >= _DEAD)
        demo_state.fact("asleep", f"{asleep:.1f} s with a call pending, {workers} workers alive")

    def _come_back(self) -> None:
        demo_state, participants = self._demo_state, self._participants
        dead_for = time.monotonic() - self._killed_at
        began = time.monotonic()
        self._start_all("starts again")
        started, took = time.time(), time.monotonic() - began
        demo_state.say("note", "all", f"serve again after {took:.1f} s")
        demo_state.fact(
            "kill -9", f"{len(participants.processes)} processes; {dead_for:.1f} s later started again, in {took:.1f} s"
        )
        self._watch.until("the lab goes on with load_test", lambda: participants.progress()["runs"] == 2)
        at = participants.progress()["from"]
        if at < self._progress_when_killed:
            raise DemoFailed(
                f"load_test should go on after {self._progress_when_killed:g} s, but it does so after {at:g}."
            )
        demo_state.say("note", "lab", f"goes on with load_test where it was: after {at:g} s")
        result = self._watch.until_entry("load_test answers", "result", name="load_test", by="tool")
        runs = participants.progress()["runs"]
        self._watch.until("the agent says so", lambda: self._thread.answer_after(result))
        demo_state.fact("load test", f"begun {runs} times; the second went on after {at:g} s")
        demo_state.fact("result", f"woke the agent {max(0.0, result['at'] - started):.1f} s after all were there again")

    def _alert(self) -> None:
        demo_state, thread = self._demo_state, self._thread
        self._watch.until("the agent sleeps", lambda: self._participants.workers.quiet_for() >= _QUIET)
        sent, acknowledged = time.time(), self._send_alert()
        event = self._watch.until_entry("the alert arrives", "event", name="watch_alerts")
        child = self._watch.until_entry("a child thread is made for it", "child", event=event["seq"])
        report = self._watch.until_entry("the child reports", "report", thread_id=child["thread_id"])
        self._watch.until("the agent hears of it", lambda: thread.answer_after(report))
        self._watch.until("the model calls roll_out, which asks", self._open_question)
        if not thread.first("child_closed", thread_id=child["thread_id"]):
            raise DemoFailed(f"The child thread should be closed, and is {thread.status_of(child['thread_id'])}.")
        demo_state.fact(
            "event",
            f"taken in {_ms(acknowledged)}; woke a child thread after {child['at'] - sent:.1f} s, "
            f"which reported after {report['at'] - sent:.1f} s",
        )

    def _question(self) -> None:
        demo_state, participants = self._demo_state, self._participants
        question = self._watch.until("the question is open", self._open_question)
        self._watch.let_read(_TO_READ_A_QUESTION)
        self._watch.until("the agent sleeps", lambda: participants.workers.quiet_for() >= _QUIET)
        if running := participants.running_handlers():
            raise DemoFailed(f"While a person thinks, no tool should run, but {running:g} of the ops server's do.")
        waited = time.time() - question["asked_at"]
        idle = f"{running:g} tools and {len(participants.workers.now)} workers running"
        demo_state.say("note", "ops", f"has been asking for {waited:.1f} s, with {idle}")
        answered = time.time()
        self._thread.answer(question, 0)
        result = self._watch.until_entry("roll_out answers", "result", name="roll_out", by="tool")
        self._watch.until("the agent says so", lambda: self._thread.answer_after(result))
        demo_state.fact(
            "question",
            f"open for {waited:.1f} s, with {idle}; acted on {result['at'] - answered:.1f} s after the answer",
        )

    def _close(self) -> None:
        demo_state, participants, thread = self._demo_state, self._participants, self._thread
        before = len(participants.workspaces())
        closed = time.monotonic()
        demo_state.say("user", "you", "close the thread")
        thread.close()
        self._watch.until("the thread is closed", lambda: thread.now["status"] == "closed")
        self._watch.until("the lab deletes the thread's folder", lambda: not participants.workspaces())
        self._watch.until("the ops server ends the subscription", participants.ended_subscriptions)
        took = time.monotonic() - closed
        demo_state.say(
            "note", "lab", f"has deleted the thread's folder ({before} before, {len(participants.workspaces())} now)"
        )
        demo_state.say("note", "ops", f"has ended the subscription ({participants.ended_subscriptions()})")
        self._watch.until("the last worker ends", lambda: participants.workers.quiet_for() >= _QUIET)
        calls, answers = len(thread.posts), thread.answers()
        if not calls == len(answers) == len(set(answers)):
            raise DemoFailed(f"Each of {calls} calls should be answered once, but there are {len(answers)} answers.")
        demo_state.fact("exactly once", f"{calls} calls, {len(answers)} answers in the journals, each to another call")
        demo_state.fact(
            "closed",
            f"{before} folder deleted, {participants.ended_subscriptions()} subscription ended, {took:.1f} s after closing",
        )
        demo_state.fact("workers", f"{len(participants.workers.came)} came, {len(participants.workers.now)} are left")
        demo_state.fact("model", f"{thread.requests()} requests to {participants.model}")
        demo_state.fact("disk", f"{_kb(participants.disk_use())} in {participants.stores()} SQLite files")
        for process in participants.processes:
            process.tell_to_end()
        codes = [process.ended() for process in participants.processes]
        if any(codes):
            raise DemoFailed(f"The processes should end with exit code 0 on SIGTERM, and ended with {codes}.")
        demo_state.say("note", "all", "ended, on SIGTERM, with exit code 0")

    # What it is made of

    def _start_all(self, how: str) -> None:
        for process in self._participants.processes:
            self._participants.start(process)
            self._demo_state.say("shell", "$", process.command, f"{how}, pid {process.pid}")
        for process in self._participants.processes:
            process.wait_until_it_serves(self._watch.look)

    def _watches(self) -> bool:
        return any(each["name"] == "watch_alerts" for each in self._thread.now.get("subscriptions", ()))

    def _is_asleep(self) -> bool:
        pending = [call["name"] for call in self._thread.now.get("pending_calls", ())]
        return pending == ["load_test"] and self._participants.workers.quiet_for() >= _QUIET

    def _open_question(self) -> Mapping[str, Any] | None:
        return next(iter(self._thread.now.get("choices", ())), None)

    def _send_alert(self) -> float:
        body = json.dumps({"service": SERVICE, "text": ALERT}).encode()
        signature = hmac.new(self._participants.secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": secrets.token_hex(8)}
        ops = self._participants.ops
        began = time.monotonic()
        status, answer = ops.post("/hooks/alerts", body, headers)
        took = time.monotonic() - began
        if status != 200:
            said = answer.decode(errors="replace")
            raise DemoFailed(f"The alert should be accepted, and was answered {status}: {said}", ops.tail())
        self._demo_state.say("out", "ops", f"a monitoring system's webhook: {ALERT}", f"200 after {_ms(took)}")
        return took


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _kb(size: int) -> str:
    return f"{size / 1000:.0f} kB"
