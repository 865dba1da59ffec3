"""`rapkit serve`."""

import contextlib
import logging
import sys
from dataclasses import replace

import click

from rapkit.cli.options import aws_keys_by_name, certificates_by_name, log_format, log_level, tokens_by_name
from rapkit.cli.port_type import PORT
from rapkit.cli.reload import run_and_reload
from rapkit.cli.toolset_loader import load_toolset
from rapkit.errors import ConfigError
from rapkit.logs import set_up_logging
from rapkit.server.embedded import is_embedded, printing_to_standard_error
from rapkit.server.standalone import announcement, serve, tls_of
from rapkit.server.toolset import Toolset

log = logging.getLogger("rapkit.cli")


@click.command()
@click.argument("target", type=click.Path())  # which is completed as one
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="The address to listen on.")
@click.option(
    "--port",
    default=8001,
    show_default=True,
    metavar="NUMBER",
    type=PORT,
    help="The port to listen on; 0 for any free one.",
)
@click.option("--store", metavar="URL", help="Where invocations are kept.  [default: sqlite:///.rapkit/<toolset>.db]")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="[NAME=]TOKEN",
    help="Who may call: env:VARIABLE, file:PATH or the token itself. Repeat for several; two of one name are both good.",
)
@click.option(
    "--aws-key",
    "aws_keys",
    multiple=True,
    metavar="NAME=ID:SECRET",
    help="Who may call by AWS signatures: an access key id, and its secret as env:VARIABLE, file:PATH or itself. Repeat for several.",
)
@click.option("--tls-cert", metavar="FILE", type=click.Path(), help="Serve HTTPS with this certificate (PEM).")
@click.option("--tls-key", metavar="FILE", type=click.Path(), help="Its private key, if not in the same file.")
@click.option(
    "--client-ca",
    metavar="FILE",
    type=click.Path(),
    help="Serve only callers with a client certificate of this authority (PEM), under the name in the certificate.",
)
@click.option(
    "--client-certificate",
    "certificates",
    multiple=True,
    metavar="NAME=CN",
    help="Of these, only the ones with this DNS name, URI or common name, as the caller NAME. Repeat for several.",
)
@click.option(
    "--public-url", metavar="URL", help="Where callers reach this server, if not at the address it listens on."
)
@click.option(
    "--allow-plain-http",
    is_flag=True,
    help="Allow an http:// public URL on another host than this machine. Secret URLs then travel in clear.",
)
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="NUMBER",
    help="Invocations a second and caller; past it callers are asked to come back.  [default: 10000]",
)
@click.option(
    "--allow-callback",
    "allow",
    multiple=True,
    metavar="CIDR",
    help="A network, address or origin (http://host:port) that results may be sent to though it is not public.",
)
@click.option("--reload", is_flag=True, help="Restart when a Python file changes.")
@log_format
@log_level
def command(
    target: str,
    host: str,
    port: int,
    store: str | None,
    tokens: tuple[str, ...],
    aws_keys: tuple[str, ...],
    tls_cert: str | None,
    tls_key: str | None,
    client_ca: str | None,
    certificates: tuple[str, ...],
    public_url: str | None,
    allow_plain_http: bool,
    rate: float | None,
    allow: tuple[str, ...],
    reload: bool,
    log_format: str,
    log_level: str,
) -> None:
    """Serve the toolset of TARGET: a file or a module, with the name of the toolset if there are several.

    \b
    rapkit serve weather.py
    rapkit serve weather.py:tools --reload
    rapkit serve package.module:tools --host 0.0.0.0 --token agent=env:AGENT_TOKEN
    rapkit serve weather.py --tls-cert server.pem --tls-key key.pem
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    set_up_logging(log_format, log_level)
    if reload:
        run_and_reload(target, [word for word in sys.argv[1:] if word != "--reload"])
        return
    # What a file prints when it is loaded must not come before the one line a program that embeds us waits for.
    with printing_to_standard_error() if is_embedded() else contextlib.nullcontext():
        toolset = load_toolset(target)
    if store == "":
        raise ConfigError("--store is empty. Write it like sqlite:///weather.db.")
    toolset.store = store or toolset.store
    if public_url is not None:
        toolset.public_url = public_url
    toolset.allow_plain_http = allow_plain_http or toolset.allow_plain_http
    if rate is not None:
        toolset.limits = replace(toolset.limits, rate=rate)
    toolset.allow_callbacks = (*toolset.allow_callbacks, *allow)
    if tokens:
        toolset.tokens = tokens_by_name(tokens)
    if aws_keys:
        toolset.aws_keys = aws_keys_by_name(aws_keys)
    if certificates:
        toolset.client_certificates = certificates_by_name(certificates)
    tls = tls_of(toolset, tls_cert, tls_key, client_ca)
    serve(toolset, host, port, tls=tls, on_start=lambda url: _announce(toolset, url, log_format))


def _announce(toolset: Toolset, url: str, log_format: str) -> None:
    if log_format == "json":  # where every line is to be JSON
        log.info("serving", extra={"toolset": toolset.name, "url": url, "store": toolset.store_url})
    else:
        click.echo(announcement(toolset, url), err=True)
