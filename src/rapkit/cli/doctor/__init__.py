"""`rapkit doctor`."""

import dataclasses
from pathlib import Path

import click
from rich.console import Console

from rapkit.cli.config_option import config_file
from rapkit.cli.doctor.examining import PATIENCE, examine
from rapkit.cli.doctor.patient import Patient
from rapkit.cli.doctor.report import as_json, is_well, show, waiting
from rapkit.cli.options import tokens_by_name
from rapkit.errors import ConfigError
from rapkit.settings import Flags, load_settings

_PATIENCE_WITH_MODELS = 120.0


@click.command()
@config_file
@click.option("--model", metavar="NAME", help="The model, such as openai:gpt-5-mini or scripted:plan.yaml.")
@click.option("--server", "servers", multiple=True, metavar="URL", help="A tool server. Repeat for several.")
@click.option("--store", metavar="URL", help="Where threads are kept.  [default: sqlite:///.rapkit/agent.db]")
@click.option("--public-url", metavar="URL", help="Where tools call back, if not at the address it listens on.")
@click.option("--host", metavar="ADDRESS", help="The address the agent listens on.")
@click.option("--port", metavar="NUMBER", type=click.IntRange(0, 65535), help="The port the agent listens on.")
@click.option(
    "--token",
    "tokens",
    multiple=True,
    metavar="[NAME=]TOKEN",
    help="Who may use the client API: env:VARIABLE, file:PATH or the token itself. Repeat for several.",
)
@click.option("--ask-model", is_flag=True, help="Ask the model for one word, to see that its key is good.")
@click.option("--json", "json_", is_flag=True, help="Say it in JSON.")
def command(
    config: str,
    model: str | None,
    servers: tuple[str, ...],
    store: str | None,
    public_url: str | None,
    host: str | None,
    port: int | None,
    tokens: tuple[str, ...],
    ask_model: bool,
    json_: bool,
) -> None:
    """Check settings, stores, servers, the model and the clock, and say what to do about what is wrong.

    Nothing is changed, and no tool is called. Give it the options you give to `rapkit up`. Ends with 0 if nothing failed, else with 1.
    """
    flags = Flags(model, store, public_url, host, port, tokens_by_name(tokens) if tokens else None, servers)
    patient = dataclasses.replace(_patient(Path(config), flags), ask_model=ask_model)
    with waiting(Console(stderr=True)) as on_wait:
        verdicts = examine(patient, on_wait, patience=_PATIENCE_WITH_MODELS if ask_model else PATIENCE)
    if json_:
        click.echo(as_json(verdicts))
    else:
        show(verdicts, Console(highlight=False))
    raise click.exceptions.Exit(0 if is_well(verdicts) else 1)


def _patient(config: Path, flags: Flags) -> Patient:
    try:
        return Patient(config, load_settings(config, flags), None, Path())
    except ConfigError as error:
        return Patient(config, None, str(error), Path())
