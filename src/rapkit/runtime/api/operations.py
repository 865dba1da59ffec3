"""The operations of the client API: one table, from which the routes and /openapi.json are built."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import BaseModel
from pydantic_core import to_json
from starlette.types import Receive, Send

from rapkit.http.requests import Refusal
from rapkit.protocol.display_script import describe_call
from rapkit.runtime.api import schemas
from rapkit.runtime.api.entries import EntryPage, page_of
from rapkit.runtime.api.event_stream import EventStream, StreamTiming, read_id
from rapkit.runtime.api.responses import ApiResponse, document_response, json_response
from rapkit.runtime.event_feed import choice_shown
from rapkit.runtime.thread_commands import ThreadCommands, ThreadFamily, ThreadSnapshot
from rapkit.work.offload import offload

_LARGEST_PAGE = 8 * 1024 * 1024
_LINES_AT_ONCE = 50


About = Callable[[], schemas.AgentDetail]
"""What the agent is."""


class Sendable(Protocol):
    """A response, whole or streamed."""

    async def send(self, receive: Receive, send: Send) -> None:
        """Send it."""


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request, validated by its operation's models."""

    threads: ThreadCommands
    about: About
    path: Mapping[str, str]
    query: Any = None
    body: Any = None
    key: str | None = None
    last_event_id: str | None = None
    root: str = ""
    pace: StreamTiming = field(default_factory=StreamTiming)

    @property
    def thread_id(self) -> str:
        """The thread it is about."""
        return self.path["thread_id"]


Handler = Callable[[ApiRequest], Awaitable[Sendable]]


@dataclass(frozen=True, slots=True)
class Operation:
    """Something a client can ask for: `query` and `body` read it, `answer` describes what comes back with `status`."""

    name: str
    method: str
    path: str
    summary: str
    handler: Handler
    status: int
    answer: type[BaseModel] | None
    problems: tuple[int, ...] = ()
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None


# The agent


async def get_agent(asked: ApiRequest) -> Sendable:
    """Look at the agent itself."""
    return document_response(asked.about())


# Threads


async def create_thread(asked: ApiRequest) -> Sendable:
    """Begin one."""
    body: schemas.NewThread = asked.body
    thread_id = await asked.threads.create(text=body.text, user_id=body.user_id, key=asked.key)
    location = (b"location", f"{asked.root}/v1/threads/{thread_id}".encode("latin-1", "replace"))
    return document_response(schemas.ThreadMade(thread_id=thread_id), 201, (location,))


async def list_threads(asked: ApiRequest) -> Sendable:
    """Page through them."""
    query: schemas.ThreadsQuery = asked.query
    page = await asked.threads.newest(
        parent=query.parent, status=query.status, after=query.cursor or "", limit=query.limit
    )
    threads = [schemas.ThreadSummary(**_summary(look)) for look in page.looks]
    return document_response(schemas.ThreadPage(threads=threads, next_cursor=page.next))


async def get_thread(asked: ApiRequest) -> Sendable:
    """Look at one."""
    look = await asked.threads.look(asked.thread_id)
    thread = look.thread
    calls = [
        schemas.PendingCall(
            call_id=call_id,
            name=call.name,
            operation=call.operation,
            server=call.server,
            arguments=call.arguments,
            display=call.display or describe_call(call.name, call.arguments),
            made_at=call.made_at,
            still_running_shown=call.detached,
            awaits=call.awaits,
            until=thread.timers.get(call_id),
            callback_problem=look.unsigned.get(call_id),
        )
        for call_id, call in thread.pending.items()
    ]
    subscriptions = [
        schemas.ActiveSubscription(
            call_id=call_id,
            name=each.name,
            arguments=each.arguments,
            display=each.display or describe_call(each.name, each.arguments),
            since=each.since,
            callback_problem=look.unsigned.get(call_id),
        )
        for call_id, each in thread.subscriptions.items()
    ]
    # An answer is for the first question of a call, so that is the one that is shown.
    questions = [
        schemas.OpenQuestion(**choice_shown(call_id, asked_now[0], thread))
        for call_id, asked_now in thread.choices.items()
    ]
    detail = schemas.ThreadDetail(
        **_summary(look),
        length=thread.length,
        pending_calls=calls,
        subscriptions=subscriptions,
        choices=questions,
        oauth=[schemas.Authorization(call_id=call, auth_url=url) for call, url in look.authorizations.items()],
        views=look.views,
        children=[*thread.children, *thread.spawned],
        missing_toolsets=[
            schemas.MissingToolset(server=server, reason=reason) for server, reason in thread.missing_toolsets.items()
        ],
        budget=schemas.ThreadBudget(
            **{each.name: schemas.Used(used=each.used, limit=each.limit) for each in asked.threads.budget(thread)}
        ),
    )
    return document_response(detail)


async def get_family(asked: ApiRequest) -> Sendable:
    """See all that came of one."""
    return document_response(_relative(await asked.threads.family(asked.thread_id)))


def _relative(family: ThreadFamily) -> schemas.Relative:
    thread = family.look.thread
    return schemas.Relative(
        **_summary(family.look),
        for_event=thread.for_event,
        children=[_relative(child) for child in family.children],
        more_children=family.more,
    )


def _summary(look: ThreadSnapshot) -> dict[str, Any]:
    thread = look.thread
    return {
        "thread_id": thread.id,
        "parent_id": thread.parent,
        "status": look.status,
        "reason": thread.parked,
        "task": thread.task or None,
        "asks_user": bool(thread.choices or thread.authorizing),
        "user_id": thread.user_id,
        "created_at": look.created_at,
        "usage": thread.usage,
    }


async def get_history(asked: ApiRequest) -> Sendable:
    """Read the journal. A page ends early when it gets large: entries may hold images."""
    query: schemas.HistoryQuery = asked.query
    entries: list[dict[str, Any]] = []
    after, size, more = query.cursor, _LARGEST_PAGE, True
    while more and len(entries) < query.limit and size > 0:
        wanted = min(_LINES_AT_ONCE, query.limit - len(entries))
        lines = await asked.threads.history(asked.thread_id, after, wanted, size)
        documents, size = await offload(sum(line.size for line in lines), page_of, lines, size)
        entries += documents
        after = documents[-1]["seq"] if documents else after
        length, _ = await asked.threads.journal_end(asked.thread_id)
        more = bool(lines) and after < length
    page = {"entries": entries, "next_cursor": str(after) if more else None}
    return json_response(await offload(_LARGEST_PAGE - size, to_json, page))


async def stream_events(asked: ApiRequest) -> Sendable:
    """Follow one. Who has everything of a closed thread is told to stay away: 204 is what ends an EventSource."""
    query: schemas.EventsQuery = asked.query
    given = asked.last_event_id or query.last_event_id
    after, skip = read_id(given) if given else (0, 0)
    length, is_all = await asked.threads.journal_end(asked.thread_id)
    if after + skip > length:
        raise Refusal(400, f"Last-Event-ID: the thread has {length} entries. Leave it out to begin at the beginning.")
    if given and is_all and after == length:
        return ApiResponse(204)
    return EventStream(asked.threads.follow(asked.thread_id, after, skip), asked.pace)


# Saying something


async def send_message(asked: ApiRequest) -> Sendable:
    """Say something."""
    body: schemas.NewMessage = asked.body
    message_id = await asked.threads.send(asked.thread_id, body.text, asked.key)
    return document_response(schemas.MessageTaken(message_id=message_id), 202)


async def close_thread(asked: ApiRequest) -> Sendable:
    """End it."""
    await asked.threads.close(asked.thread_id)
    return document_response(schemas.Taken(), 202)


async def cancel_call(asked: ApiRequest) -> Sendable:
    """Cancel a call or a subscription."""
    await asked.threads.cancel(asked.thread_id, asked.path["call_id"], asked.key)
    return document_response(schemas.Taken(), 202)


async def choose(asked: ApiRequest) -> Sendable:
    """Answer a question."""
    body: schemas.Selection = asked.body
    await asked.threads.choose(asked.thread_id, asked.path["call_id"], body.selected, asked.key, body.asked_at)
    return document_response(schemas.Taken(), 202)


async def answer_question(asked: ApiRequest) -> Sendable:
    """Answer a question in words."""
    body: schemas.AnswerInWords = asked.body
    await asked.threads.answer(asked.thread_id, asked.path["call_id"], body.text, asked.key, body.asked_at)
    return document_response(schemas.Taken(), 202)


async def grant_budget(asked: ApiRequest) -> Sendable:
    """Let it use more."""
    body: schemas.MoreBudget = asked.body
    await asked.threads.grant(asked.thread_id, slices=body.slices, tokens=body.tokens, cost=body.cost, key=asked.key)
    return document_response(schemas.Taken(), 202)


_ONE = "/v1/threads/{thread_id}"
_CALL = f"{_ONE}/calls/{{call_id}}"

OPERATIONS = (
    Operation("getAgent", "GET", "/v1/agent", "Look at the agent itself", get_agent, 200, schemas.AgentDetail),
    Operation(
        "createThread",
        "POST",
        "/v1/threads",
        "Begin a thread",
        create_thread,
        201,
        schemas.ThreadMade,
        body=schemas.NewThread,
    ),
    Operation(
        "listThreads",
        "GET",
        "/v1/threads",
        "List threads, the latest first",
        list_threads,
        200,
        schemas.ThreadPage,
        query=schemas.ThreadsQuery,
    ),
    Operation("getThread", "GET", _ONE, "Look at a thread", get_thread, 200, schemas.ThreadDetail, (404,)),
    Operation(
        "getFamily",
        "GET",
        f"{_ONE}/family",
        "See a thread with its children, and theirs",
        get_family,
        200,
        schemas.Relative,
        (404,),
    ),
    Operation(
        "getHistory",
        "GET",
        f"{_ONE}/history",
        "Read a thread's journal, the oldest entry first",
        get_history,
        200,
        EntryPage,
        (404,),
        query=schemas.HistoryQuery,
    ),
    Operation(
        "streamEvents",
        "GET",
        f"{_ONE}/events",
        "Follow a thread as server-sent events",
        stream_events,
        200,
        None,
        (404,),
        query=schemas.EventsQuery,
    ),
    Operation(
        "sendMessage",
        "POST",
        f"{_ONE}/messages",
        "Say something to a thread",
        send_message,
        202,
        schemas.MessageTaken,
        (404, 409),
        body=schemas.NewMessage,
    ),
    Operation("closeThread", "POST", f"{_ONE}/close", "Close a thread", close_thread, 202, schemas.Taken, (404,)),
    Operation(
        "cancelCall",
        "POST",
        f"{_CALL}/cancel",
        "Cancel a pending call or an active subscription",
        cancel_call,
        202,
        schemas.Taken,
        (404, 409),
    ),
    Operation(
        "choose",
        "POST",
        f"{_CALL}/choice",
        "Answer the question of a call, or dismiss it",
        choose,
        202,
        schemas.Taken,
        (404, 409),
        body=schemas.Selection,
    ),
    Operation(
        "answer",
        "POST",
        f"{_CALL}/answer",
        "Answer the question of a call in words",
        answer_question,
        202,
        schemas.Taken,
        (404, 409),
        body=schemas.AnswerInWords,
    ),
    Operation(
        "grantBudget",
        "POST",
        f"{_ONE}/budget",
        "Let a thread use more than its budget",
        grant_budget,
        202,
        schemas.Taken,
        (404, 409),
        body=schemas.MoreBudget,
    ),
)
