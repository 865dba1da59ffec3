"""`rapkit threads`: one module per subcommand."""

import click

from rapkit.cli.threads.cancel import cancel
from rapkit.cli.threads.choose import choose
from rapkit.cli.threads.close import close
from rapkit.cli.threads.export import export
from rapkit.cli.threads.list import list_
from rapkit.cli.threads.show import show
from rapkit.cli.threads.subcommands import Subcommands


@click.group(cls=Subcommands)
def command() -> None:
    """See what an agent is at, and have a say in it.

    The agent is the one that runs, or the one of rapkit.toml: its threads can be looked at while it is stopped, and what they are told
    is done when it runs again.

    A thread is named by its id, by any beginning or end of it that no other has (4 characters at least), or as "latest".
    """


for _each in (list_, show, choose, cancel, close, export):
    command.add_command(_each)
