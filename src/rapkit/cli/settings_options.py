"""The options for an agent's settings, in a module of their own so that other commands need not load an agent."""

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from rapkit.cli.options import tokens_by_name
from rapkit.cli.port_type import PORT
from rapkit.settings.agent_location import DEFAULT_FILE, DEFAULT_HOST, DEFAULT_PORT, Flags

F = TypeVar("F", bound=Callable[..., Any])

config_file = click.option(
    "-c",
    "--config",
    envvar="RAPKIT_CONFIG",
    default=str(DEFAULT_FILE),
    show_default=True,
    metavar="FILE",
    type=click.Path(),  # which is completed as one
    help="The file with the settings; without it, the one that RAPKIT_CONFIG names.",
)


def settings_options(command: F) -> F:
    """What an agent is; the command gets it as `config` and `flags`."""

    @config_file
    @click.option("--model", metavar="NAME", help="The model, such as openai:gpt-5-mini or scripted:plan.yaml.")
    @click.option(
        "--server",
        "servers",
        multiple=True,
        metavar="URL",
        help="A tool server, besides those of the file. Repeat for several.",
    )
    @click.option("--store", metavar="URL", help="Where threads are kept.  [default: sqlite:///.rapkit/agent.db]")
    @click.option("--public-url", metavar="URL", help="Where tools call back, if not at the address it listens on.")
    @click.option(
        "--allow-plain-http",
        is_flag=True,
        help="Allow an http:// public URL on another host than this machine. Secret URLs then travel in clear.",
    )
    @functools.wraps(command)
    def with_options(
        *args: Any,
        config: str,
        model: str | None,
        servers: tuple[str, ...],
        store: str | None,
        public_url: str | None,
        allow_plain_http: bool,
        **others: Any,
    ) -> Any:
        flags = Flags(
            model=model, store=store, public_url=public_url, allow_plain_http=allow_plain_http, servers=servers
        )
        return command(*args, config=Path(config), flags=flags, **others)

    return with_options  # type: ignore[return-value]


def listening_options(command: F) -> F:
    """Where an agent listens, and to whom: more of the `flags` of `settings_options`."""

    @click.option("--host", metavar="ADDRESS", help=f"The address to listen on.  [default: {DEFAULT_HOST}]")
    @click.option(
        "--port",
        metavar="NUMBER",
        type=PORT,
        help=f"The port to listen on; 0 for any free one.  [default: {DEFAULT_PORT}]",
    )
    @click.option(
        "--token",
        "tokens",
        multiple=True,
        metavar="[NAME=]TOKEN",
        help="Who may use the client API: env:VARIABLE, file:PATH or the token itself. Repeat for several.",
    )
    @functools.wraps(command)
    def with_options(
        *args: Any, flags: Flags, host: str | None, port: int | None, tokens: tuple[str, ...], **others: Any
    ) -> Any:
        named = tokens_by_name(tokens) if tokens else None
        return command(*args, flags=dataclasses.replace(flags, host=host, port=port, tokens=named), **others)

    return with_options  # type: ignore[return-value]
