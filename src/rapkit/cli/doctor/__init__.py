"""`rapkit doctor`."""

import dataclasses
import os
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console

from rapkit.cli.doctor.checked_agent import CheckedAgent
from rapkit.cli.doctor.report import all_passed, as_json, show, waiting
from rapkit.cli.doctor.run_checks import PATIENCE, run_checks
from rapkit.cli.doctor.setting_sources import SettingSources, servers_outside
from rapkit.cli.settings_options import listening_options, settings_options
from rapkit.errors import ConfigError
from rapkit.settings.settings import Flags, load_settings

_PATIENCE_WITH_MODELS = 120.0
_NAMED_BY = {ParameterSource.COMMANDLINE: "-c", ParameterSource.ENVIRONMENT: "RAPKIT_CONFIG"}


@click.command()
@settings_options
@listening_options
@click.option("--ask-model", is_flag=True, help="Ask the model for one word, to see that its key is good.")
@click.option("--json", "json_", is_flag=True, help="Say it in JSON.")
def command(config: Path, flags: Flags, ask_model: bool, json_: bool) -> None:
    """Check settings, stores, servers, the model and the clock, and say what to do about what is wrong.

    Nothing is changed, and no tool is called. Give it the options you give to `rapkit up`. Ends with 0 if nothing failed, else with 1.
    """
    checked = dataclasses.replace(_checked(config, flags), ask_model=ask_model)
    with waiting(Console(stderr=True)) as on_wait:
        results = run_checks(checked, on_wait, patience=_PATIENCE_WITH_MODELS if ask_model else PATIENCE)
    if json_:
        click.echo(as_json(results))
    else:
        show(results, Console(highlight=False))
    raise click.exceptions.Exit(0 if all_passed(results) else 1)


def _checked(config: Path, flags: Flags) -> CheckedAgent:
    source = click.get_current_context().get_parameter_source("config")
    named_by = None if source is None else _NAMED_BY.get(source)
    try:
        settings = load_settings(config, flags)
        sources = SettingSources(named_by, servers_outside(config, flags, os.environ))
    except ConfigError as error:
        return CheckedAgent(config, None, str(error), Path(), sources=SettingSources(named_by))
    return CheckedAgent(config, settings, None, Path(), sources=sources)
