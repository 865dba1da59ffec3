"""The runtime's store, its way out and its door, as they are, but watched: what happens is traced, and some moments are the last."""

import json
import os
import signal
from collections.abc import Collection, Mapping
from types import EllipsisType
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rapkit.delivery.http_client import HttpClient, HttpResponse
from rapkit.delivery.retry import PostKind
from rapkit.kernel.entries import Answered, load_entry
from rapkit.mailbox import MAIL_BYTES, AcceptResult, Claim, Commit, Fact, NewBox, NewMail, Settlement, Store, TakenPost
from rapkit.runtime.schedules import SCHEDULE
from tests.crash.runtime.hurry import Hurry
from tests.crash.runtime.trace import Trace


class Moments:
    """Things that happen, by name; the first of some is the last."""

    def __init__(self, last: Collection[str], trace: Trace) -> None:
        self._last = last
        self._trace = trace

    def come(self, moment: str) -> None:
        if moment in self._last:
            self._trace.write(what="dies", moment=moment)
            os.kill(os.getpid(), signal.SIGKILL)


class WatchedStore:
    """A store that tells what is claimed and for how long. To schedules its clock goes fast."""

    def __init__(self, store: Store, trace: Trace, moments: Moments, hurry: Hurry) -> None:
        self._store = store
        self._trace = trace
        self._moments = moments
        self._hurry = hurry

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def create(self, box: NewBox, new_mail: NewMail | None = None) -> bool:
        self._moments.come("before create")
        made = await self._store.create(box, new_mail)
        self._moments.come("after create")
        return made

    async def note(self, box: NewBox, fact: Fact, expect: bytes | EllipsisType | None = ...) -> bool:
        written = await self._store.note(box, fact, expect)
        self._moments.come(f"after note {box.kind}")
        return written

    async def accept(self, new_mail: NewMail) -> AcceptResult:
        kind = new_mail.kind.partition("/")[0]
        self._moments.come(f"before accept {kind}")
        accept_result = await self._store.accept(new_mail)
        self._moments.come(f"after accept {kind}")
        return accept_result

    async def accept_claimed(self, new_mail: NewMail, worker: str) -> tuple[AcceptResult, Claim | None]:
        kind = new_mail.kind.partition("/")[0]
        self._moments.come(f"before accept {kind}")
        accept_result, claim = await self._store.accept_claimed(new_mail, worker)
        self._moments.come(f"after accept {kind}")
        self._claimed([] if claim is None else [claim])
        return accept_result, claim

    async def claim(self, worker: str, kind: str, limit: int, mail_bytes: int = MAIL_BYTES) -> list[Claim]:
        claims = self._hurry.claims(await self._store.claim(worker, kind, limit, mail_bytes))
        self._claimed(claims)
        return claims

    def _claimed(self, claims: list[Claim]) -> None:
        for claim in claims:
            self._trace.write(what="claimed", box=claim.box.id, epoch=claim.epoch)
            self._moments.come("after claim")

    async def commit(self, claim: Claim, commit: Commit, sender: str | None = None) -> list[TakenPost]:
        commit = self._hurry.commit(claim, commit)
        name = _name_of(claim, commit)
        self._moments.come(f"before commit {name}")
        if not commit.keep:
            self._trace.write(what="released", box=claim.box.id, epoch=claim.epoch)
        taken = await self._store.commit(claim, commit, sender)
        self._moments.come(f"after commit {name}")
        return taken

    async def settle(self, taken: TakenPost, settlement: Settlement) -> None:
        self._moments.come(f"before settle {taken.outgoing.kind}")
        await self._store.settle(taken, settlement)
        self._moments.come(f"after settle {taken.outgoing.kind}")


def _name_of(claim: Claim, commit: Commit) -> str:
    """What a commit is for."""
    kinds = {entry.kind for entry in commit.entries}
    if claim.box.kind == SCHEDULE:
        return "firing" if commit.new_mails else "schedule"
    if commit.spawn:
        return "spawn" if "assistant" in kinds else "child"
    if "report" in {new_mail.kind for new_mail in commit.new_mails}:
        return "report"
    for kind, name in (("closed", "closed"), ("summary", "summary"), ("report", "heard report"), ("schedule", "woken")):
        if kind in kinds:
            return name
    if claim.timers and "result" in kinds:
        return _name_of_time(commit)
    if "chosen" in kinds:
        return "permission" if any(each.kind == PostKind.INVOCATION for each in commit.outgoing) else "chosen"
    if "choice" in kinds and "assistant" in kinds:
        return "question"
    if commit.keep:
        return "journal"
    if "assistant" in kinds:
        return "calls" if commit.outgoing else "answer"
    return "other"


def _name_of_time(commit: Commit) -> str:
    answers = [entry for each in commit.entries if isinstance(entry := load_entry(each.body), Answered)]
    return "timeout" if any("timed out" in (answer.text or "") for answer in answers) else "end of sleep"


class WatchedLine:
    """A way out that tells what is sent."""

    def __init__(self, line: HttpClient, trace: Trace, moments: Moments) -> None:
        self._line = line
        self._trace = trace
        self._moments = moments

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        message = json.loads(body)
        if "operation" not in message:
            return await self._line.post(url, body, headers)
        ids = {"thread": message["group_id"], "call": message["id"], "message": headers["webhook-id"]}
        self._trace.write(what="invoking", **ids)
        self._moments.come("before post")
        answer = await self._line.post(url, body, headers)
        self._trace.write(what="invoked", status=answer.status, **ids)
        self._moments.come("after post")
        return answer

    async def get(self, url: str, headers: Mapping[str, str], *, limit: int) -> tuple[int, bytes]:
        return await self._line.get(url, headers, limit=limit)


class WatchedDoor:
    """An app that tells what tools were answered. It is written down before it is said."""

    def __init__(self, app: ASGIApp, trace: Trace, moments: Moments) -> None:
        self._app = app
        self._trace = trace
        self._moments = moments

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/callback/"):
            await self._app(scope, receive, send)
            return
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
        ids = _ids(body, dict(scope["headers"]))
        self._trace.write(what="heard", **ids)

        async def again() -> Message:
            return {"type": "http.request", "body": body, "more_body": False}

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._trace.write(what="answered", status=message["status"], **ids)
                self._moments.come("before answer")
            await send(message)

        await self._app(scope, again, answer)


def _ids(body: bytes, headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    said = json.loads(body)
    return {
        "message": headers[b"webhook-id"].decode(),
        "type": said["type"],
        "thread": said["group_id"],
        "call": said.get("id") or said.get("tool_call_id") or "",
        "text": said.get("text") or said.get("prompt") or said.get("view_type") or "",
    }
