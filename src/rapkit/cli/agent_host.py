"""Host an agent inside a command, for as long as the command runs."""

import asyncio
import contextlib
import dataclasses
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING

from rapkit.cli.public_url import check_who_may_call, public_url
from rapkit.http.authentication import Callers
from rapkit.http.http_server import listen, serve_in_background, url_of
from rapkit.models.scripted import Scripted
from rapkit.runtime.app import make_app
from rapkit.runtime.config import AgentConfig
from rapkit.runtime.engine import open_engine
from rapkit.secret import read_secret
from rapkit.settings.settings import Settings

if TYPE_CHECKING:
    from concurrent.futures import Future

    from rapkit.kernel.completion import Question
    from rapkit.runtime.agent import Agent

_LOOPBACK = "127.0.0.1"
_GRACE = 2.0  # for what is under way on other threads, when a command has what it wanted
_MOMENT = 0.25  # for the same, when the user does not want to wait
_PATIENCE = 5.0  # with an end that takes longer; what is left of it ends with the process

log = logging.getLogger("rapkit.cli")


class AgentHost:
    """An agent in a thread of this process, with an event loop of its own. Any thread may stop it.

    It listens as its settings say; `working`, with everything it has to do. Else it is only looked at, and told what it will do when it
    runs: then it listens somewhere else. `ConfigError` if it may not listen there, or cannot.
    """

    def __init__(self, settings: Settings, *, working: bool) -> None:
        self._settings = settings
        if working:
            check_who_may_call(settings)
            self._listener = listen(settings.host, settings.port)
            self._life = self._work
        else:
            self._listener = listen(_LOOPBACK, 0)  # its port is left to an agent that comes meanwhile
            self._life = self._be_looked_at
        reached_at = settings.host if working and settings.host not in ("0.0.0.0", "::") else _LOOPBACK  # noqa: S104
        self.url = url_of(reached_at, self._listener)
        self._thread = threading.Thread(target=self._run, name="agent", daemon=True)
        self._started = threading.Event()
        self._changing = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._end = asyncio.Event()  # only the loop touches it
        self._task: asyncio.Task[None] | None = None
        self._agent: Agent | None = None
        self._over = self._at_once = False
        self.problem: BaseException | None = None

    @property
    def runs(self) -> bool:
        """Whether it does right now."""
        return self._started.is_set() and self._thread.is_alive()

    def start(self) -> None:
        """Run it; raises what keeps it from running."""
        self._thread.start()
        self._started.wait()
        if self.problem is not None:
            raise self.problem

    def stop(self, *, at_once: bool) -> None:
        """End it, and wait for that. `at_once`: completions under way are not waited for; the next worker makes them again."""
        with self._changing:
            self._over, self._at_once = True, at_once
            if self._loop is not None:
                with contextlib.suppress(RuntimeError):  # it has ended already
                    self._loop.call_soon_threadsafe(self._leave, self._loop, at_once)
        if self._thread.ident is None:
            self._listener.close()
        else:
            self._thread.join(_PATIENCE if at_once else None)

    def look_at_servers(self) -> "Future[dict[str, str]] | None":
        """Ask its tool servers: what is wrong with those that do not answer as they should, by their names. None if it does not work."""
        if self._agent is None or self._loop is None:
            return None
        asking = _problems(self._agent)
        try:
            return asyncio.run_coroutine_threadsafe(asking, self._loop)
        except RuntimeError:  # it has ended already
            asking.close()
            return None

    def _leave(self, loop: asyncio.AbstractEventLoop, at_once: bool) -> None:
        self._end.set()
        if at_once and self._task is not None:
            loop.call_later(_MOMENT, self._task.cancel)

    def _run(self) -> None:
        try:
            asyncio.run(self._live())
        except BaseException as problem:
            if self._started.is_set():
                log.critical("the agent ended", exc_info=problem)
            self.problem = problem
        finally:
            self._started.set()

    async def _live(self) -> None:
        with self._listener:
            with self._changing:
                if self._over:
                    return
                self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
            try:
                async with self._life() as end_streams:
                    self._started.set()
                    await self._end.wait()
                    end_streams()
            except asyncio.CancelledError:
                if not self._at_once:
                    raise
            finally:
                await asyncio.sleep(0)  # connections that were closed last are let go in the loop's next turn

    @contextlib.asynccontextmanager
    async def _work(self) -> AsyncIterator[Callable[[], None]]:
        agent = self._settings.agent()
        agent.lasting = False
        agent.patience = dataclasses.replace(agent.patience, grace=min(_GRACE, agent.patience.grace))
        port = self._settings.port  # tools call back where the settings say
        url = public_url(self._settings, None if port else self._listener.getsockname()[1])
        async with agent.lifespan(public_url=url), serve_in_background(agent.app, self._listener, agent.capacity.http):
            self._agent = agent
            yield agent.end_streams

    @contextlib.asynccontextmanager
    async def _be_looked_at(self) -> AsyncIterator[Callable[[], None]]:
        """Only its store and the client API. Nothing is configured in the store, nor noted: where it receives is not here."""
        settings = self._settings
        plan = AgentConfig(
            model=Scripted(_nobody),
            servers=(),
            store=settings.store,
            public_url=settings.public_url or self.url,
            limits=settings.limits,
            budget=settings.budget,
            lasting=False,
        )
        callers = Callers({name: [read_secret(each) for each in some] for name, some in settings.tokens.items()})
        async with open_engine(plan) as engine:
            app = make_app(
                engine=lambda: engine,
                callers=callers,
                capacity=plan.capacity,
                toolsets=(),
                lifespan=lambda _app: contextlib.nullcontext(),
            )
            async with serve_in_background(app, self._listener, plan.capacity.http):
                yield engine.broadcast.end


async def _problems(agent: "Agent") -> dict[str, str]:
    findings = await agent.engine.toolsets.survey()
    return {finding.server.key: finding.problem for finding in findings if finding.problem is not None}


def _nobody(_question: "Question") -> str:
    raise AssertionError("Nobody works here, so nobody asks.")
