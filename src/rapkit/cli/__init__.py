"""The command line: one file a command, loaded when it is used."""

import sys
from importlib import import_module

import click

from rapkit import __version__
from rapkit.errors import RapkitError

_COMMANDS = {
    "demo": ("rapkit.cli.demo", "See a call outlive kill -9."),
    "serve": ("rapkit.cli.serve", "Serve a toolset."),
    "up": ("rapkit.cli.up", "Run an agent."),
    "wake": ("rapkit.cli.wake", "Do what is due for an agent, and end."),
    "inspect": ("rapkit.cli.inspect", "Look at a tool server."),
    "call": ("rapkit.cli.call", "Call a tool and wait for its answer."),
    "outbox": ("rapkit.cli.outbox", "See what could not be delivered, and send it again."),
}
_INTERRUPTED = 130  # what shells give to a command that Ctrl-C ended


class _Commands(click.Group):
    """Commands by name; their modules are imported only when they are called or asked for help."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = import_module(_COMMANDS[name][0])
        command: click.Command = module.command
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in _COMMANDS.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rapkit", message="%(prog)s %(version)s")
def rapkit() -> None:
    """Durable tools and agents that wait without running: the Reactive Agent Protocol."""


def main() -> None:
    """Run the command line. A mistake of the user's is one sentence and exit code 2, never a traceback."""
    try:
        # What ends a command early, such as --help, comes back as its exit code; a closed pipe is click's to handle.
        sys.exit(rapkit.main(prog_name="rapkit", standalone_mode=False))
    except RapkitError as error:
        _complain(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "rapkit"
        _complain(f"{error.format_message()} See: {command} --help")
    except click.ClickException as error:
        _complain(error.format_message())
    except click.Abort:
        sys.exit(_INTERRUPTED)


def _complain(problem: str) -> None:
    click.echo(f"rapkit: {problem}", err=True)
    sys.exit(2)
