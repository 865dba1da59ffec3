"""The OAuth 2 provider of a crash test: it remembers what became of which code, and takes its time."""

import asyncio
import contextlib
import random
import socket
import time
from collections.abc import AsyncIterator
from typing import Any, Literal

import uvicorn

from tests.server.interaction.oauth.provider_server import Consent, ProviderServer

Moment = Literal["asked", "given"]


class Provider(ProviderServer):
    """A provider whose tokens have to be refreshed nearly whenever they are needed."""

    def __init__(self, url: str, random: random.Random) -> None:
        super().__init__(url, time.time)
        self.expires_in = 61  # they are refreshed in their last minute
        self.presented: dict[str, list[float]] = {}
        """When which code was presented."""
        self.used: dict[str, float] = {}
        """When a token that was given for a code was first used."""
        self._codes: dict[int, str] = {}
        self._code_of: dict[str, str] = {}
        self._random = random
        self._ambushes: dict[Moment, asyncio.Future[None]] = {}
        self.trouble = self._linger

    def ambush(self, moment: Moment) -> "asyncio.Future[None]":
        """Done when the next token is asked for, or was given."""
        return self._ambushes.setdefault(moment, asyncio.get_running_loop().create_future())

    def _spring(self, moment: Moment) -> None:
        waiting = self._ambushes.pop(moment, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    async def _linger(self) -> None:
        self._spring("asked")
        await asyncio.sleep(self._random.uniform(0, 0.05))

    def issue_code(self, consent: Consent) -> str:
        code = self._codes[id(consent)] = super().issue_code(consent)
        return code

    def keep(self, consent: Consent, token: dict[str, Any]) -> None:
        self._code_of[token["access_token"]] = self._codes[id(consent)]
        super().keep(consent, token)
        self._spring("given")

    def owner_of(self, access_token: str) -> str | None:
        self.used.setdefault(self._code_of.get(access_token, ""), time.monotonic())
        return super().owner_of(access_token)

    def use_code(self, code: str) -> Consent | None:
        self.presented.setdefault(code, []).append(time.monotonic())
        return super().use_code(code)


@contextlib.asynccontextmanager
async def provider_at_work(random: random.Random) -> AsyncIterator[Provider]:
    """A provider on a port of its own."""
    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        provider = Provider(f"http://127.0.0.1:{listener.getsockname()[1]}", random)
        config = uvicorn.Config(
            provider.app, lifespan="off", ws="none", log_config=None, access_log=False, timeout_graceful_shutdown=1
        )
        config.load()
        server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        await server.startup(sockets=[listener])
        try:
            yield provider
        finally:
            await server.shutdown(sockets=[listener])
