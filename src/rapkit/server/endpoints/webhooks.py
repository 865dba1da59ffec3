"""Webhooks: endpoints where event sources notify a tool server, which emits to its subscribers (SUB-7).

A delivery is verified before anything else is done with it. Its source hears 200 only after the handler has returned, so what the handler
emitted is durable by then; otherwise the source is asked to send it again. So the same delivery can come twice, and whoever has a copy of
one can repeat it as long as its signature holds. Where the handler gives the delivery's id to `emit`, the same id is taken once. GitHub
signs neither its delivery's id nor a time, so whoever has a copy of one of its deliveries can repeat it under another id: take https.
"""

import asyncio
import inspect
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Literal

from starlette.types import Receive, Scope, Send

from rapkit.errors import ConfigError, InvalidMessage, StoreError, ToolError
from rapkit.http.rate_limit import RateLimit
from rapkit.http.requests import Body, Refusal, retry_later, send_answer, send_problem
from rapkit.http.unauthenticated import check_rate
from rapkit.secret import read_secret
from rapkit.server.endpoints.invocations import RETRY_WHEN_STORE_FAILS
from rapkit.server.endpoints.webhook_delivery import Delivery
from rapkit.server.endpoints.webhook_styles import STYLES
from rapkit.server.engine import TooBusy
from rapkit.server.thread_pool import ThreadPool

StyleName = Literal["github", "stripe", "standard"]
Handler = Callable[[Delivery], Any]

_PATH = re.compile(r"(/[A-Za-z0-9._~-]+)+")
_OURS = frozenset(
    (
        *("invoke", "close_thread", "cancel_tool_call", "migrate"),
        *("healthz", "readyz", "metrics", ".well-known", "answer", "oauth"),
    )
)

log = logging.getLogger("rapkit.webhooks")


class Webhook:
    """A path a source sends to, how its deliveries are verified, and what is done with them.

    `style` says how the source signs, with one of `secret`: each the secret itself, `env:VARIABLE` or `file:path`, several while they are
    rotated. `verify` is for all other sources: a function, plain or async, that is given a delivery and returns True if it is authentic.
    """

    def __init__(
        self,
        path: str,
        handler: Handler,
        *,
        style: StyleName | None = None,
        secret: str | Sequence[str] | None = None,
        verify: Callable[[Delivery], Any] | None = None,
    ) -> None:
        self.path = path
        self.handler = handler
        self._verify = verify
        self._references = () if secret is None else (secret,) if isinstance(secret, str) else tuple(secret)
        self._secrets: tuple[str, ...] = ()
        _check_path(path)
        _check_function(path, handler)
        if verify is not None:
            _check_function(path, verify)
            if style is not None or secret is not None:
                raise self._wrong("is verified either by style= and secret=, or by verify=, not by both.")
        elif style is None:
            raise self._wrong("would believe anybody. Say how the source signs: style= and secret=, or verify=.")
        elif style not in STYLES:
            raise self._wrong(f"has no style {style!r}. There are: {', '.join(STYLES)}. For other sources use verify=.")
        elif not self._references or "" in self._references:
            raise self._wrong('needs the secret that the source signs with, like secret="env:GITHUB_WEBHOOK_SECRET".')
        self._style = None if style is None else STYLES[style]

    def open(self) -> None:
        """Read the secrets; `ConfigError` if one cannot be read or used. To be called at every start, so that new ones are taken up."""
        if self._style is None:
            return
        found = []
        for reference in self._references:
            try:
                value = read_secret(reference)
                if not value:
                    raise ConfigError("It is empty.")
                self._style.check_secret(value)
            except ConfigError as error:
                raise self._wrong(f"has a secret that cannot be used. {error}") from None
            found.append(value)
        self._secrets = tuple(found)

    async def verified(self, delivery: Delivery, now: float, thread_pool: ThreadPool) -> Delivery | None:
        """The delivery with its id and event if it is authentic, else None."""
        if self._style is not None:
            return self._style.name(delivery) if self._style.proves(delivery, self._secrets, now) else None
        assert self._verify is not None
        try:
            is_authentic = await _call(thread_pool, self._verify, delivery)
        except (LookupError, ValueError, InvalidMessage) as error:
            # What looking at missing or malformed headers leads to, and any client may send them.
            log.info("verify of the webhook %s raised %s, so it is a no", self.path, type(error).__name__)
            return None
        if not isinstance(is_authentic, bool):
            log.error(
                "verify of the webhook %s gave a %s instead of True or False", self.path, type(is_authentic).__name__
            )
        return delivery if is_authentic is True else None

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(f"The webhook {self.path!r} {what}")


class WebhookEndpoint:
    """An ASGI app for a webhook, which maps the errors of its handler to responses.

    `running` raises `ConfigError` as long as the toolset does not run. Only what is not authentic counts against `strangers`: a busy
    source is none, and some never send again what was refused once.
    """

    def __init__(
        self,
        webhook: Webhook,
        running: Callable[[], object],
        strangers: RateLimit,
        largest: int,
        *,
        thread_pool: ThreadPool | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._webhook = webhook
        self._running = running
        self._strangers = strangers
        self._largest = largest
        self._thread_pool = thread_pool or ThreadPool()
        self._now = now

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        try:
            await self._take(await self._authentic(scope, receive))
        except Refusal as refusal:
            await send_problem(send, refusal)
        else:
            await send_answer(send, 200)

    async def _authentic(self, scope: Scope, receive: Receive) -> Delivery:
        try:
            self._running()
        except ConfigError as error:
            raise Refusal(503, str(error)) from None
        delivery = Delivery(None, None, _headers(scope), await Body(scope, receive, self._largest).read())
        try:
            found = await self._webhook.verified(delivery, self._now(), self._thread_pool)
        except BaseException as error:  # noqa: BLE001 - authors raise anything
            raise self._failed(delivery, error) from None
        if found is None:
            # Only now, so that other clients at the same address cannot use up what an honest source needs.
            check_rate(self._strangers, scope)
            log.info("a delivery was refused, because it is not authentic", extra={"path": self._webhook.path})
            raise Refusal(401, "This delivery is not authentic.")
        return found

    async def _take(self, delivery: Delivery) -> None:
        try:
            await _call(self._thread_pool, self._webhook.handler, delivery)
        except (ToolError, InvalidMessage) as error:
            raise Refusal(400, str(error)) from None
        except TooBusy as busy:
            raise retry_later("Too much to do right now.", busy.retry_after) from None
        except StoreError as error:
            log.error("not stored: %s", error)
            raise retry_later("The delivery could not be stored.", RETRY_WHEN_STORE_FAILS) from None
        except BaseException as error:  # noqa: BLE001 - as above
            raise self._failed(delivery, error) from None

    def _failed(self, delivery: Delivery, error: BaseException) -> Refusal:
        """The response to an unexpected failure, which makes the source send the delivery again."""
        task = asyncio.current_task()
        if isinstance(error, GeneratorExit | KeyboardInterrupt) or (
            isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling()
        ):
            raise error  # not the handler's: the server is being stopped
        reference = secrets.token_hex(4)
        log.error(
            "the webhook failed (reference %s)",
            reference,
            exc_info=error,
            extra={
                "path": self._webhook.path,
                "delivery_id": delivery.id,
                "event": delivery.event,
                "reference": reference,
            },
        )
        return Refusal(500, f"The delivery could not be handled (reference {reference}). Send it again.")


async def _call(thread_pool: ThreadPool, function: Handler, delivery: Delivery) -> Any:
    found = (
        function(delivery)
        if inspect.iscoroutinefunction(function)
        else await thread_pool.run(partial(function, delivery))
    )
    return await found if inspect.isawaitable(found) else found


def _check_path(path: str) -> None:
    if not _PATH.fullmatch(path):
        raise ConfigError(
            f"{path!r} cannot be the path of a webhook. Write it like /hooks/github: letters, digits and . _ ~ - between slashes."
        )
    if path.split("/")[1] in _OURS:
        raise ConfigError(
            f"{path!r} is a path of rapkit's own. Put the webhook elsewhere, for example at /hooks{path}."
        )


def _check_function(path: str, function: object) -> None:
    if not callable(function) or inspect.isclass(function):
        raise ConfigError(f"The webhook {path!r} needs a function, and {function!r} is none.")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigError(f"{function!r} of the webhook {path!r} yields, and nobody would listen. Call emit() instead.")


def _headers(scope: Scope) -> dict[str, str]:
    found: dict[str, str] = {}
    for raw_name, raw_value in scope["headers"]:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        found[name] = f"{found[name]}, {value}" if name in found else value
    return found
