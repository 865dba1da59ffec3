"""The client API over HTTP."""

from collections.abc import Callable

from starlette.routing import Route

from rapkit.http.authentication import Callers
from rapkit.runtime.api.endpoint import ApiEndpoint
from rapkit.runtime.api.event_stream import StreamTiming
from rapkit.runtime.api.openapi import OpenApi
from rapkit.runtime.api.operations import OPERATIONS, About
from rapkit.runtime.thread_commands import ThreadCommands

_OPENAPI = "/openapi.json"


def api_routes(
    threads: Callable[[], ThreadCommands],
    about: About,
    callers: Callers,
    largest: int,
    values: int | None = None,
    *,
    keep_alive: float = 15.0,
    longest_stream: float = 600.0,
) -> list[Route]:
    """The routes of the client API. `about` says what the agent is; a body may have `largest` bytes and `values` JSON values.

    A stream of events says every `keep_alive` seconds that it lives, and ends after `longest_stream` seconds. Clients come again by
    themselves, and a server that wants to stop does not wait for them for ever.
    """
    pace = StreamTiming(keep_alive, longest_stream)
    paths = dict.fromkeys(operation.path for operation in OPERATIONS)
    routes = [
        Route(
            path,
            ApiEndpoint(
                [each for each in OPERATIONS if each.path == path], threads, about, callers, largest, pace, values
            ),
        )
        for path in paths
    ]
    return [*routes, Route(_OPENAPI, OpenApi(OPERATIONS, _OPENAPI))]
