"""`Client`: the HTTP API of an agent, typed."""

from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from rapkit.client.config import ClientRetries, ClientTimeouts
from rapkit.client.models import AgentDetail, CreatedThread, Status, ThreadPage, ThreadSummary
from rapkit.client.thread import ClientThread
from rapkit.client.transport import AgentUrl, Transport, path_of


class Client:
    """Talks to a running agent, such as `rapkit up`: `async with Client("http://127.0.0.1:8700") as client:`.

    `url` is where the agent listens. `token` is one of its tokens, as `env:VARIABLE`, `file:path` or the token itself; an agent on this
    machine may need none. `timeouts` and `retries` say how long to wait and how often to try. Requests whose connection fails are sent
    again, those that change something under an idempotency key, so that the agent does them once.

    Every failure is a `ClientError` whose text says what to do. One client can be used by any number of tasks of one event loop.
    """

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        timeouts: ClientTimeouts | None = None,
        retries: ClientRetries | None = None,
    ) -> None:
        self._transport = Transport(AgentUrl(url), token, timeouts or ClientTimeouts(), retries or ClientRetries())

    def __repr__(self) -> str:
        return f"Client({self.url!r})"

    @property
    def url(self) -> str:
        """Where the agent is."""
        return self._transport.url.text

    async def __aenter__(self) -> Self:
        """Open the client. Nothing is dialled before the first request."""
        await self._transport.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close all connections."""
        await self._transport.__aexit__(kind, error, trace)

    async def agent(self) -> AgentDetail:
        """The agent itself: its version, model, tool servers and store."""
        return self._transport.read(AgentDetail, await self._transport.get(path_of("agent")))

    async def create_thread(
        self, text: str | None = None, *, user_id: str | None = None, idempotency_key: str | None = None
    ) -> ClientThread:
        """Create a thread, with a first message if there is a `text`. `user_id` is the user it works for, which tools are told."""
        body = {"text": text, "user_id": user_id}
        made = await self._transport.post(path_of("threads"), body, idempotency_key)
        return self.thread(self._transport.read(CreatedThread, made).thread_id)

    def thread(self, thread_id: str) -> ClientThread:
        """The thread with this id. Nothing is sent: `NotFound` is raised by the first request about it if there is none."""
        return ClientThread(self._transport, thread_id)

    async def threads(
        self, *, status: Status | None = None, parent: str | None = None, page_size: int = 50
    ) -> AsyncIterator[ThreadSummary]:
        """All threads, the latest first: those with a `status`, or the children of a `parent`. Fetched in pages of up to `page_size`."""
        cursor: str | None = None
        while True:
            page = await self.threads_page(status=status, parent=parent, limit=page_size, cursor=cursor)
            for thread in page.threads:
                yield thread
            if page.next_cursor is None:
                return
            cursor = page.next_cursor

    async def threads_page(
        self, *, status: Status | None = None, parent: str | None = None, limit: int = 50, cursor: str | None = None
    ) -> ThreadPage:
        """One page of threads, of up to `limit`, at most 200. `cursor` is the `next_cursor` of the page before."""
        query = {"status": status, "parent": parent, "limit": limit, "cursor": cursor}
        return self._transport.read(ThreadPage, await self._transport.get(path_of("threads"), query))
