"""`Toolset`: a set of tools, and the server that makes them durable."""

import contextlib
import hashlib
import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, overload
from urllib.parse import urlsplit

from starlette.types import ASGIApp

from rapkit.delivery.client_certificate import ClientCertificate
from rapkit.delivery.signatures import headers as sign
from rapkit.errors import ConfigError, InvalidToolset
from rapkit.http.authentication import Callers, is_loopback_host
from rapkit.http.plain_http import check_plain_http
from rapkit.http.sigv4 import AwsKeys, SigV4Keys
from rapkit.protocol import ToolsetDocument, dump, parse_toolset
from rapkit.secret import read_secret
from rapkit.server.app import make_app
from rapkit.server.config import Durations, ToolsetConfig
from rapkit.server.endpoints.webhook_delivery import Delivery
from rapkit.server.endpoints.webhooks import StyleName, Webhook
from rapkit.server.engine import ToolsetEngine, ToolsetEnvironment, run_engine
from rapkit.server.interaction.oauth import OAuthProvider
from rapkit.server.interaction.oauth.service import by_name
from rapkit.server.limits import Limits
from rapkit.server.resources.close_hooks import CloseHook
from rapkit.server.standalone import HOW_TO_KNOW_CALLERS, is_loading, serve, tls_of
from rapkit.server.tools.event_rate import DEFAULT_RATE
from rapkit.server.tools.hooks import Hook
from rapkit.server.tools.tool import (
    DEFAULT_CONFIRM_AFTER,
    SubscriptionTraits,
    Tool,
    Traits,
    make_subscription,
    make_tool,
    read_expected,
)

F = TypeVar("F", bound=Callable[..., Any])
H = TypeVar("H", bound=Hook)
C = TypeVar("C", bound=CloseHook)
W = TypeVar("W", bound=Callable[[Delivery], Any])
Secrets = str | Mapping[str, str | Sequence[str]]
Lifespan = Callable[["Toolset"], contextlib.AbstractAsyncContextManager[None]]

_NOT_IN_FILE_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")
_NO_LIFESPAN = (
    "The toolset {name!r} is mounted but not started, because mounted apps get no lifespan. "
    "Give it to the outer app: FastAPI(lifespan=tools.lifespan)."
)


class Toolset:
    """A named set of tools.

    `tokens` are who may call: a token, or several by name; each is the token itself, `env:VARIABLE` or `file:path`. Without any, only this
    machine may. `caller_secrets` are another way to know callers, by the Standard Webhooks signature of what they send; `aws_keys` another,
    by AWS signatures: secret access keys by access key id, by the caller's name. `client_certificates` are names in TLS client
    certificates, by the caller's name, for a server that is run with a client CA. `allow_callbacks` lists networks, addresses and origins
    that results may be sent to though they are not public. `store` is where invocations are kept, `.rapkit/<name>.db` by default.
    `public_url` is where the server is reached, if not where it listens; it has to be https unless it is loopback, or `allow_plain_http` is
    set. `webhook_secrets` sign callbacks as Standard Webhooks do, and `callback_certificate` is shown to runtimes that
    ask for a client certificate. `oauth` are the providers that `ctx.oauth` can ask users to authorise us at. `version` changes when the
    tools do; by default it is derived from them.
    """

    def __init__(
        self,
        name: str,
        *,
        description: str | None = None,
        version: str | None = None,
        store: str | None = None,
        public_url: str | None = None,
        allow_plain_http: bool = False,
        tokens: Secrets | None = None,
        caller_secrets: Secrets | None = None,
        aws_keys: AwsKeys | None = None,
        client_certificates: Secrets | None = None,
        allow_callbacks: Sequence[str] = (),
        webhook_secrets: Sequence[str] = (),
        callback_certificate: ClientCertificate | None = None,
        oauth: Sequence[OAuthProvider] = (),
        limits: Limits | None = None,
        durations: Durations | None = None,
        lifespan: Lifespan | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.store = store
        self.public_url = public_url
        self.allow_plain_http = allow_plain_http
        self.allow_callbacks = tuple(allow_callbacks)
        self.limits = limits or Limits()
        self.durations = durations or Durations()
        self._version = version
        self.tokens = tokens
        self.caller_secrets = caller_secrets
        self.aws_keys = aws_keys
        self.client_certificates = client_certificates
        self.callback_certificate = callback_certificate
        self.webhook_secrets = tuple(webhook_secrets)
        self._oauth = by_name(oauth)
        self._lifespan = lifespan
        self._tools: dict[str, Tool] = {}
        self._hooks: list[Hook] = []
        self._close_hooks: list[CloseHook] = []
        self._webhooks: dict[str, Webhook] = {}
        self._engine: ToolsetEngine | None = None
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
        expected: str | None = None,
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
        expected: str | None = None,
    ) -> Any:
        """Make a function a tool. Bare, or with what the author says about it.

        `read_only` and `idempotent` tools run again if the server is lost while they run; others are answered with an error that says the
        outcome is unknown. `timeout` is in seconds. `expected` is how long it usually takes, like "30 s" or "2-10 min": models are told,
        and runtimes wait accordingly. `display` is a Rhai expression over `args` that gives one line for people.
        """
        traits = Traits(read_only, destructive, idempotent, long_running, requires_auth, display, timeout)

        def register(function: F) -> F:
            said = replace(traits, expected=read_expected(expected, function, name))
            self._add(make_tool(function, name, said))
            return function

        return register if function is None else register(function)

    @overload
    def subscription(self, function: F, /) -> F: ...

    @overload
    def subscription(
        self,
        *,
        name: str | None = None,
        topic: str | None = None,
        associative: bool = False,
        rate: float | None = ...,
        batch: bool = False,
        confirm_after: float | None = ...,
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        long_running: bool = True,
        requires_auth: str | None = None,
        display: str | None = None,
        timeout: float | None = None,
        expected: str | None = None,
    ) -> Callable[[F], F]: ...

    def subscription(
        self,
        function: Any = None,
        *,
        name: str | None = None,
        topic: str | None = None,
        associative: bool = False,
        rate: float | None = DEFAULT_RATE,
        batch: bool = False,
        confirm_after: float | None = DEFAULT_CONFIRM_AFTER,
        read_only: bool = False,
        destructive: bool = False,
        idempotent: bool = False,
        long_running: bool = True,
        requires_auth: str | None = None,
        display: str | None = None,
        timeout: float | None = None,
        expected: str | None = None,
    ) -> Any:
        """Make a function a tool that answers with events, now and then, until it ends or is cancelled. Bare, or with arguments.

        Without a `topic` the function is a generator: what it yields is an event (an `Event`, or its text). It starts with the subscription
        and goes on after restarts of the server, with the last event's cursor in `ctx.cursor`. It is confirmed with its first
        `ctx.checkpoint` or event, or after it has run for `confirm_after` seconds; None means only with a checkpoint or event, for one that
        takes a baseline. An exception before that is the call's error result. With a topic such as "gh/{owner}/{repo}" the function is
        called with `payload` for everything that is emitted there, and returns an event, or None. `associative` events belong into the
        subscribing thread, others get a thread of their own. `rate` is how many events a second are sent; more are delayed, or with `batch`
        put together. `timeout` is how many seconds a topic's function may take. If `requires_auth` names a declared provider, the user is
        asked to authorise us before the generator starts.
        """
        traits = Traits(read_only, destructive, idempotent, long_running, requires_auth, display, timeout)
        kind = SubscriptionTraits(
            associative=associative, topic=topic, rate=rate, batch=batch, confirm_after=confirm_after
        )

        def register(function: F) -> F:
            said = replace(traits, expected=read_expected(expected, function, name))
            self._add(make_subscription(function, name, said, kind))
            return function

        return register if function is None else register(function)

    def _add(self, tool: Tool) -> None:
        self._check_not_running(f"The tool {tool.name!r}")
        if tool.name in self._tools:
            raise ConfigError(f"toolset {self.name!r} has two tools named {tool.name!r}. Rename one, or give it name=.")
        self._tools[tool.name] = tool

    async def emit(self, topic: str, payload: object, *, id: str | None = None) -> None:
        """Tell everybody who is subscribed to the topic. Durable when it returns; the same `id` again is told once."""
        await self._running_engine().emit(topic, payload, id)

    def webhook(
        self,
        path: str,
        *,
        style: StyleName | None = None,
        secret: str | Sequence[str] | None = None,
        verify: Callable[[Delivery], Any] | None = None,
    ) -> Callable[[W], W]:
        """Have a function called for every authentic delivery to a path: to `emit` what is in it.

        `style` is how the source signs ("github", "stripe" or "standard") with the `secret`: itself, `env:VARIABLE` or `file:path`, or
        several of them while they are rotated. `verify` is for other sources: a function that says whether a delivery is authentic.
        """

        def register(function: W) -> W:
            webhook = Webhook(path, function, style=style, secret=secret, verify=verify)
            if self._app is not None:
                raise ConfigError(f"The webhook {path!r} comes too late: declare it before tools.app is used.")
            if path in self._webhooks:
                raise ConfigError(f"toolset {self.name!r} has two webhooks at {path!r}. Put one elsewhere.")
            self._webhooks[path] = webhook
            return function

        return register

    def on_thread_close(self, function: C) -> C:
        """Have a function called when a thread that used this toolset was closed, or has not called for long. It may be called twice."""
        self._check_not_running("A function for closed threads")
        self._close_hooks.append(function)
        return function

    def around(self, function: H) -> H:
        """Put an async function around every call: it is given the call and `proceed`, and what it returns is the call's result.

        To refuse a call it raises `ToolError`. The first one registered is the outermost. Around a subscription it is around the
        confirmation, not around its events.
        """
        self._check_not_running("A function around calls")
        self._hooks.append(function)
        return function

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
        keys, certificates = self.aws_keys, self.client_certificates
        return Callers(
            _read(self.tokens),
            _read(self.caller_secrets),
            aws_keys=None if keys is None else SigV4Keys(_read_keys(keys), urlsplit(self.public_url or "").path),
            certificates=None if certificates is None else _read(certificates),
        )

    @property
    def serves_strangers(self) -> bool:
        """Whether something is for others than callers: webhooks, and users who come back from an OAuth provider."""
        return bool(self._webhooks or self._oauth)

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
                limits=self.limits,
                webhooks=list(self._webhooks.values()),
                lifespan=self.lifespan,
            )
        return self._app

    @contextlib.asynccontextmanager
    async def lifespan(
        self,
        _app: object = None,
        *,
        loopback_callbacks: bool = False,
        within: str | None = None,
        environment: ToolsetEnvironment | None = None,
    ) -> AsyncIterator[None]:
        """Work as long as the context lasts. `tools.app` does it by itself unless it is mounted in another app.

        `within` is for an app that serves only the unauthenticated endpoints, such as links for users: the URL below which they are.
        """
        if self._engine is not None:
            yield  # mounted and served at once: started already
            return
        config = self._config(loopback_callbacks, within)
        if self.public_url is not None:
            check_plain_http(self.public_url, allowed=self.allow_plain_http)
        for webhook in self._webhooks.values():
            webhook.open()
        async with contextlib.AsyncExitStack() as stack:
            if self._lifespan is not None:
                await stack.enter_async_context(self._lifespan(self))
                config = self._config(
                    loopback_callbacks, within
                )  # it may have added tools, and with them another version
            self._engine = await stack.enter_async_context(run_engine(config, environment))
            stack.callback(self._forget_engine)
            yield

    def _config(self, loopback_callbacks: bool, within: str | None) -> ToolsetConfig:
        self.document("http://localhost")
        callers = self.callers
        if (
            callers.local_only
            and self.public_url is not None
            and not is_loopback_host(urlsplit(self.public_url).hostname or "")
        ):
            raise ConfigError(
                f"{self.public_url} can be reached from other machines, and no credentials are configured: behind a proxy anybody "
                f"could call your tools. {HOW_TO_KNOW_CALLERS}."
            )
        secrets = [read_secret(secret) for secret in self.webhook_secrets]
        sign("", 0, b"", secrets)  # one that is none is found now, not with the first result
        return ToolsetConfig(
            toolset=self.name,
            tools=self._tools,
            version=self.version,
            store=self.store_url,
            public_url=url.rstrip("/") if (url := self.public_url or within) else None,
            callers=callers,
            allow_callbacks=self.allow_callbacks,
            # Without tokens all callers are on this machine, and can reach it without our help.
            loopback_callbacks=loopback_callbacks or callers.local_only,
            webhook_secrets=secrets,
            callback_certificate=self.callback_certificate,
            oauth=self._oauth,
            hooks=tuple(self._hooks),
            close_hooks=tuple(self._close_hooks),
            limits=self.limits,
            durations=self.durations,
        )

    def run(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 8001,
        tls_cert: str | None = None,
        tls_key: str | None = None,
        client_ca: str | None = None,
    ) -> None:
        """Serve until interrupted. What keeps it from being served is said in a sentence, and the process ended.

        With a `tls_cert` over HTTPS; with a `client_ca` only to callers with a client certificate of that authority. All are PEM files.
        """
        try:
            serve(self, host, port, tls=tls_of(self, tls_cert, tls_key, client_ca))
        except ConfigError as error:
            if is_loading():
                raise  # the loader of the file reports it better
            raise SystemExit(f"{self.name}: {error}") from None

    def _check_not_running(self, what: str) -> None:
        if self._engine is not None:
            raise ConfigError(f"{what} comes too late: toolset {self.name!r} is being served already.")

    def _forget_engine(self) -> None:
        self._engine = None

    def _running_engine(self) -> ToolsetEngine:
        if self._engine is None:
            raise ConfigError(_NO_LIFESPAN.format(name=self.name))
        return self._engine


def _read_keys(given: AwsKeys) -> dict[str, dict[str, str]]:
    return {name: {id: read_secret(secret) for id, secret in pairs.items()} for name, pairs in given.items()}


def _read(given: Secrets | None) -> dict[str, str | Sequence[str]]:
    if given is None:
        return {}
    return {
        name: read_secret(each) if isinstance(each, str) else [read_secret(one) for one in each]
        for name, each in ({"default": given} if isinstance(given, str) else given).items()
    }
