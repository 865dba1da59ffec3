"""The example servers, served on real sockets of this machine."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from rapkit import Toolset
from rapkit.cli.toolset_loader import load_toolset
from rapkit.kernel.limits import Confirmations, ThreadLimits
from tests.server.interaction.oauth.provider_server import ProviderServer
from tests.server.served_toolset import serving_app

_FOLDER = Path(__file__).parents[2] / "examples"

UNASKED = ThreadLimits(confirmations=Confirmations(destructive="never"))
"""For tools that are dangerous, and tests that are about something else."""


def example(name: str, folder: Path) -> Toolset:
    """An example that keeps what it knows in a folder of the test's."""
    tools = load_toolset(str(_FOLDER / f"{name}.py"))
    tools.store = f"sqlite:///{folder}/{name}.db"
    return tools


@contextlib.asynccontextmanager
async def served(tools: Toolset) -> AsyncIterator[str]:
    """Serve a toolset; its URL."""
    tools.allow_callbacks = ("127.0.0.0/8",)
    async with serving_app(tools.app) as port:
        yield f"http://127.0.0.1:{port}"


@contextlib.asynccontextmanager
async def github_api(provider: ProviderServer) -> AsyncIterator[str]:
    """GitHub's API, for whoever the provider gave a token; its URL."""

    async def answer(request: Request) -> JSONResponse:
        owner = provider.owner_of(request.headers["authorization"].removeprefix("Bearer "))
        if owner is None:
            return JSONResponse({}, 401)
        return JSONResponse([{"repository": {"full_name": f"{owner}/api"}, "number": 7, "title": "It rains"}])

    routes = [Route("/issues", answer), Route("/repos/{path:path}", answer, methods=["PATCH"])]
    async with serving_app(Starlette(routes=routes)) as port:
        yield f"http://127.0.0.1:{port}"
