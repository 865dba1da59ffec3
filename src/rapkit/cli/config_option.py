"""The option that names an agent's settings. By itself, so that commands without an agent need not load one."""

import click

from rapkit.settings import DEFAULT_FILE

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
