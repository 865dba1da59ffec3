"""A toolset: tools, and the server that makes them durable."""

import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar, overload

from starlette.types import ASGIApp

from rapkit.delivery.signatures import headers as sign
from rapkit.errors import ConfigError, InvalidToolset
from rapkit.protocol import ToolsetDocument, dump, parse_toolset
from rapkit.secret import read_secret
from rapkit.server.app import make_app
from rapkit.server.callers import Callers
from rapkit.server.engine import Durations, Engine, Plan, running
from rapkit.server.limits import Limits
from rapkit.server.serving import is_loading, serve
from rapkit.server.tool import Tool, Traits, make_tool

F = TypeVar("F", bound=Callable[..., Any])
Tokens = str | Mapping[str, str | Sequence[str]]
Lifespan = Callable[["Toolset"], contextlib.AbstractAsyncContextManager[None]]

_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_NO_LIFESPAN = (
    "The toolset {name!r} is mounted but not started, because mounted apps get no lifespan. "
    "Give it to the outer app: FastAPI(lifespan=tools.lifespan)."
)


class Toolset:
    """A named set of tools.

    `tokens` are who may call: a token, or several by name; each is the token itself, `env:VARIABLE` or `file:path`. Without any, only this
    machine may. `allow_callbacks` lists networks, addresses and origins that results may be sent to though they are not public. `store` is
    where invocations are kept, `.rapkit/<name>.db` by default. `public_url` is where the server is reached, if not where it listens.
    `webhook_secrets` sign callbacks as Standard Webhooks do. `version` changes when the tools do; by default it is derived from them.
    """

    def __init__(
        self,
        name: str,
        *,
        description: str | None = None,
        version: str | None = None,
        store: str | None = None,
        public_url: str | None = None,
        tokens: Tokens | None = None,
        allow_callbacks: Sequence[str] = (),
        webhook_secrets: Sequence[str] = (),
        limits: Limits | None = None,
        durations: Durations | None = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.store = store
        self.public_url = public_url
        self.allow_callbacks = tuple(allow_callbacks)
        self.limits = limits or Limits()
        self.durations = durations or Durations()
        self._version = version
        self.tokens = tokens
        self.webhook_secrets = tuple(webhook_secrets)
        self._lifespan = lifespan
        self._tools: dict[str, Tool] = {}
        self._engine: Engine | None = None
        self._app: ASGIApp | None = None

    @overload
    def tool(self, function: F, /) -> F: ...

    @overload
    def tool(
        self,
        *,
        name: str | None = None,
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        long_running: bool = False,
        requires_auth: str | None = None,
        display: str | None = None,
        timeout: float | None = None,
    ) -> Callable[[F], F]: ...

    def tool(
        self,
        function: Any = None,
        *,
        name: str | None = None,
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        long_running: bool = False,
        requires_auth: str | None = None,
        display: str | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Make a function a tool. Bare, or with what the author says about it.

        `read_only` and `idempotent` tools run again if the server is lost while they run; others are answered with an error that says the
        outcome is unknown. `timeout` is in seconds. `display` is a Rhai expression over `args` that gives one line for people.
        """
        traits = Traits(read_only, destructive, idempotent, long_running, requires_auth, display, timeout)

        def register(function: F) -> F:
            tool = make_tool(function, name, traits)
            if tool.name in self._tools:
                raise ConfigError(
                    f"toolset {self.name!r} has two tools named {tool.name!r}. Rename one, or give it name=."
                )
            self._tools[tool.name] = tool
            return function

        return register if function is None else register(function)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools by name."""
        return self._tools

    @property
    def store_url(self) -> str:
        """Where invocations are kept."""
        return self.store or f"sqlite:///.rapkit/{_NOT_IN_FILE_NAMES.sub('-', self.name).lstrip('.')}.db"

    @property
    def version(self) -> str:
        """The version callers are told; it changes whenever a tool's definition does, unless it was given."""
        if self._version is not None:
            return self._version
        definitions = json.dumps([json.loads(dump(tool.definition())) for tool in self._tools.values()], sort_keys=True)
        return hashlib.sha256(definitions.encode()).hexdigest()[:12]

    @property
    def callers(self) -> Callers:
        """Who may call."""
        tokens: Mapping[str, str | Sequence[str]]
        if self.tokens is None:
            tokens = {}
        elif isinstance(self.tokens, str):
            tokens = {"default": self.tokens}
        else:
            tokens = self.tokens
        return Callers(
            {
                name: read_secret(given) if isinstance(given, str) else [read_secret(each) for each in given]
                for name, given in tokens.items()
            }
        )

    def document(self, base_url: str) -> ToolsetDocument:
        """The toolset as discovery shows it; `ConfigError` if it is not one yet."""
        draft = {
            "name": self.name,
            "description": self.description,
            "endpoint": f"{base_url.rstrip('/')}/invoke",
            "version": self.version,
            "tools": [json.loads(dump(tool.definition())) for tool in self._tools.values()],
        }
        try:
            return parse_toolset(json.dumps(draft).encode())
        except InvalidToolset as error:
            raise ConfigError(f"toolset {self.name!r} cannot be served:\n{error}") from None

    @property
    def app(self) -> ASGIApp:
        """The toolset as an ASGI app."""
        if self._app is None:
            self._app = make_app(
                engine=self._running_engine,
                document=self.document,
                public_url=self.public_url,
                callers=self.callers,
                largest=self.limits.body,
                lifespan=self.lifespan,
            )
        return self._app

    @contextlib.asynccontextmanager
    async def lifespan(self, _app: object = None, *, loopback_callbacks: bool = False) -> AsyncIterator[None]:
        """Work as long as the context lasts. `tools.app` does it by itself unless it is mounted in another app."""
        if self._engine is not None:
            yield  # mounted and served at once: started already
            return
        self.document("http://localhost")
        callers = self.callers
        secrets = [read_secret(secret) for secret in self.webhook_secrets]
        sign("", 0, b"", secrets)  # one that is none is found now, not with the first result
        plan = Plan(
            toolset=self.name,
            tools=self._tools,
            version=self.version,
            store=self.store_url,
            callers=callers,
            allow_callbacks=self.allow_callbacks,
            # Without tokens all callers are on this machine, and can reach it without our help.
            loopback_callbacks=loopback_callbacks or callers.local_only,
            webhook_secrets=secrets,
            limits=self.limits,
            durations=self.durations,
        )
        async with contextlib.AsyncExitStack() as stack:
            if self._lifespan is not None:
                await stack.enter_async_context(self._lifespan(self))
            self._engine = await stack.enter_async_context(running(plan))
            stack.callback(self._forget_engine)
            yield

    def run(self, *, host: str = "127.0.0.1", port: int = 8001) -> None:
        """Serve until interrupted. What keeps it from being served is said in a sentence, and the process ended."""
        try:
            serve(self, host, port)
        except ConfigError as error:
            if is_loading():
                raise  # whoever loads the file says it better
            raise SystemExit(f"{self.name}: {error}") from None

    def _forget_engine(self) -> None:
        self._engine = None

    def _running_engine(self) -> Engine:
        if self._engine is None:
            raise ConfigError(_NO_LIFESPAN.format(name=self.name))
        return self._engine
