"""The story of the demo, chapter by chapter. Whatever it says it has seen: in the client API, in files, in the process table."""

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

_TO_READ = 4.0  # seconds that a chapter is shown at least, to somebody who reads along
_TO_READ_A_QUESTION = 3.0
_ASLEEP = 1.5  # and that the agent is watched while it sleeps
_DEAD = 0.5
_QUIET = 0.4  # without a worker, before it counts as sleep: the next one may be on its way


class DemoScript:
    """Told once. `DemoFailed` if anything does not happen that should, and within `patience` seconds."""

    def __init__(self, scene: DemoState, cast: Participants, stopped: Callable[[], None], patience: float) -> None:
        self._scene = scene
        self._cast = cast
        self._thread = cast.conversation(scene)
        self._watch = Watch(scene, cast, self._thread, stopped, patience)
        self._killed_at = 0.0
        self._progress_when_killed = 0.0

    def tell(self) -> None:
        """From the first process to the last."""
        self._scene.chapters = CHAPTERS
        self._scene.processes = self._cast.processes
        with self._scene.watched(self._cast.workers):
            for part in (self._start, self._ask, self._sleep, self._kill, self._come_back):
                self._chapter(part)
            for part in (self._alert, self._question, self._close):
                self._chapter(part)

    def _chapter(self, part: Callable[[], None]) -> None:
        self._scene.next_chapter()
        try:
            part()
        except OutputLost:
            raise
        except (RapkitError, OSError) as error:  # of somebody who should have answered
            raise DemoFailed(f"{self._scene.chapter.title}: {error}", self._cast.tails()) from error
        self._watch.let_read(_TO_READ)

    # What happens

    def _start(self) -> None:
        self._start_all("starts")
        offered = self._cast.offered()
        for name, operations in offered.items():
            self._scene.say("note", name, f"offers {', '.join(operations)}")

    def _ask(self) -> None:
        seconds = 12 if self._scene.shown.paced else 6
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
        self._scene.fact("request", f"on disk {_ms(on_disk)} after it was sent")
        self._scene.fact("slow call", f"load_test was acknowledged {_ms(post.seconds)} after it was made")

    def _sleep(self) -> None:
        workers = self._cast.workers
        self._watch.until("the agent sleeps: no worker is alive, one call is pending", self._is_asleep)
        self._watch.until("it sleeps on", lambda: workers.quiet_for() >= _ASLEEP)
        self._scene.say("note", "agent", f"asleep: 0 workers for {workers.quiet_for():.1f} s, and a call is pending")

    def _kill(self) -> None:
        scene, cast = self._scene, self._cast
        if not self._is_asleep() or self._thread.first("result", name="load_test"):
            raise DemoFailed("The agent should still sleep, waiting for load_test, and does not.")
        asleep, workers = cast.workers.quiet_for(), len(cast.workers.now)
        self._progress_when_killed = cast.progress()["seconds"]
        for process in cast.processes:
            scene.say("shell", "$", f"kill -9 {process.pid}", process.name)
            if process.kill() != signal.SIGKILL:
                raise DemoFailed(f"{process.name} should have ended by SIGKILL, and had ended before.", process.tail())
        self._killed_at = time.monotonic()
        if alive := [process.name for process in cast.processes if process.is_reachable()]:
            raise DemoFailed(f"All should be dead, but {', '.join(alive)} can still be reached.")
        scene.say("note", "disk", f"{_kb(cast.disk_use())} are all that is left")
        self._watch.until("nothing happens", lambda: time.monotonic() - self._killed_at >= _DEAD)
        scene.fact("asleep", f"{asleep:.1f} s with a call pending, {workers} workers alive")

    def _come_back(self) -> None:
        scene, cast = self._scene, self._cast
        dead_for = time.monotonic() - self._killed_at
        began = time.monotonic()
        self._start_all("starts again")
        started, took = time.time(), time.monotonic() - began
        scene.say("note", "all", f"serve again after {took:.1f} s")
        scene.fact("kill -9", f"{len(cast.processes)} processes; {dead_for:.1f} s later started again, in {took:.1f} s")
        self._watch.until("the lab goes on with load_test", lambda: cast.progress()["runs"] == 2)
        at = cast.progress()["from"]
        if at < self._progress_when_killed:
            raise DemoFailed(
                f"load_test should go on after {self._progress_when_killed:g} s, but it does so after {at:g}."
            )
        scene.say("note", "lab", f"goes on with load_test where it was: after {at:g} s")
        result = self._watch.until_entry("load_test answers", "result", name="load_test", by="tool")
        runs = cast.progress()["runs"]
        self._watch.until("the agent says so", lambda: self._thread.answer_after(result))
        scene.fact("load test", f"begun {runs} times; the second went on after {at:g} s")
        scene.fact("result", f"woke the agent {max(0.0, result['at'] - started):.1f} s after all were there again")

    def _alert(self) -> None:
        scene, thread = self._scene, self._thread
        self._watch.until("the agent sleeps", lambda: self._cast.workers.quiet_for() >= _QUIET)
        sent, acknowledged = time.time(), self._send_alert()
        event = self._watch.until_entry("the alert arrives", "event", name="watch_alerts")
        child = self._watch.until_entry("a child thread is made for it", "child", event=event["seq"])
        report = self._watch.until_entry("the child reports", "report", thread_id=child["thread_id"])
        self._watch.until("the agent hears of it", lambda: thread.answer_after(report))
        self._watch.until("the model calls roll_out, which asks", self._open_question)
        if not thread.first("child_closed", thread_id=child["thread_id"]):
            raise DemoFailed(f"The child thread should be closed, and is {thread.status_of(child['thread_id'])}.")
        scene.fact(
            "event",
            f"taken in {_ms(acknowledged)}; woke a child thread after {child['at'] - sent:.1f} s, "
            f"which reported after {report['at'] - sent:.1f} s",
        )

    def _question(self) -> None:
        scene, cast = self._scene, self._cast
        question = self._watch.until("the question is open", self._open_question)
        self._watch.let_read(_TO_READ_A_QUESTION)
        self._watch.until("the agent sleeps", lambda: cast.workers.quiet_for() >= _QUIET)
        if running := cast.running_handlers():
            raise DemoFailed(f"While a person thinks, no tool should run, but {running:g} of the ops server's do.")
        waited = time.time() - question["asked_at"]
        idle = f"{running:g} tools and {len(cast.workers.now)} workers running"
        scene.say("note", "ops", f"has been asking for {waited:.1f} s, with {idle}")
        answered = time.time()
        self._thread.answer(question, 0)
        result = self._watch.until_entry("roll_out answers", "result", name="roll_out", by="tool")
        self._watch.until("the agent says so", lambda: self._thread.answer_after(result))
        scene.fact(
            "question",
            f"open for {waited:.1f} s, with {idle}; acted on {result['at'] - answered:.1f} s after the answer",
        )

    def _close(self) -> None:
        scene, cast, thread = self._scene, self._cast, self._thread
        before = len(cast.workspaces())
        closed = time.monotonic()
        scene.say("user", "you", "close the thread")
        thread.close()
        self._watch.until("the thread is closed", lambda: thread.now["status"] == "closed")
        self._watch.until("the lab deletes the thread's folder", lambda: not cast.workspaces())
        self._watch.until("the ops server ends the subscription", cast.ended_subscriptions)
        took = time.monotonic() - closed
        scene.say("note", "lab", f"has deleted the thread's folder ({before} before, {len(cast.workspaces())} now)")
        scene.say("note", "ops", f"has ended the subscription ({cast.ended_subscriptions()})")
        self._watch.until("the last worker ends", lambda: cast.workers.quiet_for() >= _QUIET)
        calls, answers = len(thread.posts), thread.answers()
        if not calls == len(answers) == len(set(answers)):
            raise DemoFailed(f"Each of {calls} calls should be answered once, but there are {len(answers)} answers.")
        scene.fact("exactly once", f"{calls} calls, {len(answers)} answers in the journals, each to another call")
        scene.fact(
            "closed",
            f"{before} folder deleted, {cast.ended_subscriptions()} subscription ended, {took:.1f} s after closing",
        )
        scene.fact("workers", f"{len(cast.workers.came)} came, {len(cast.workers.now)} are left")
        scene.fact("model", f"{thread.requests()} requests to {cast.model}")
        scene.fact("disk", f"{_kb(cast.disk_use())} in {cast.stores()} SQLite files")
        for process in cast.processes:
            process.tell_to_end()
        codes = [process.ended() for process in cast.processes]
        if any(codes):
            raise DemoFailed(f"The processes should end with exit code 0 on SIGTERM, and ended with {codes}.")
        scene.say("note", "all", "ended, on SIGTERM, with exit code 0")

    # What it is made of

    def _start_all(self, how: str) -> None:
        for process in self._cast.processes:
            self._cast.start(process)
            self._scene.say("shell", "$", process.command, f"{how}, pid {process.pid}")
        for process in self._cast.processes:
            process.wait_until_it_serves(self._watch.look)

    def _watches(self) -> bool:
        return any(each["name"] == "watch_alerts" for each in self._thread.now.get("subscriptions", ()))

    def _is_asleep(self) -> bool:
        pending = [call["name"] for call in self._thread.now.get("pending_calls", ())]
        return pending == ["load_test"] and self._cast.workers.quiet_for() >= _QUIET

    def _open_question(self) -> Mapping[str, Any] | None:
        return next(iter(self._thread.now.get("choices", ())), None)

    def _send_alert(self) -> float:
        body = json.dumps({"service": SERVICE, "text": ALERT}).encode()
        signature = hmac.new(self._cast.secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signature}", "X-GitHub-Delivery": secrets.token_hex(8)}
        ops = self._cast.ops
        began = time.monotonic()
        status, answer = ops.post("/hooks/alerts", body, headers)
        took = time.monotonic() - began
        if status != 200:
            said = answer.decode(errors="replace")
            raise DemoFailed(f"The alert should be accepted, and was answered {status}: {said}", ops.tail())
        self._scene.say("out", "ops", f"a monitoring system's webhook: {ALERT}", f"200 after {_ms(took)}")
        return took


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _kb(size: int) -> str:
    return f"{size / 1000:.0f} kB"
