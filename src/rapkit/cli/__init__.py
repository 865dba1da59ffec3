"""The command line: one module per command, imported when the command is used."""

import difflib
import shutil
import sys
import textwrap
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from rapkit import __version__
from rapkit.cli.standard_streams import OutputLost, standard_streams
from rapkit.cli.unexpected_error import sentence_about
from rapkit.errors import RapkitError

_SECTIONS = {
    "Begin here": {
        "demo": "See an agent outlive kill -9, in a minute.",
        "new": "Make a toolset project that runs.",
    },
    "Tools": {
        "serve": "Serve a toolset.",
        "inspect": "Look at a tool server.",
        "call": "Call a tool and wait for its answer.",
    },
    "Agents": {
        "up": "Run an agent.",
        "chat": "Talk to an agent.",
        "ask": "Ask an agent something, from a script.",
        "threads": "See what an agent is at, and have a say in it.",
        "wake": "Do what is due for an agent, and end.",
    },
    "When something is wrong": {
        "doctor": "Check settings, stores, servers and the model.",
        "outbox": "See what could not be delivered, and send it again.",
    },
    "Your shell": {"completion": "Complete commands with the Tab key."},
}
_COMMANDS = {name: summary for commands in _SECTIONS.values() for name, summary in commands.items()}
_WIDEST = max(map(len, _COMMANDS))
_UNFORESEEN = 70  # EX_SOFTWARE of sysexits.h
_WRONG = 2
_INTERRUPTED = 130  # what shells give to a command that Ctrl-C ended


class _Commands(click.Group):
    """Commands by name; their modules are imported only when they are called or asked for help."""

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, _ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module = import_module(f"rapkit.cli.{name}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        # Completing must not complain in the middle of typing.
        if args[0] not in _COMMANDS and not args[0].startswith("-") and not ctx.resilient_parsing:
            meant = "".join(f" Did you mean {each!r}?" for each in difflib.get_close_matches(args[0], _COMMANDS, 1))
            raise click.UsageError(f"There is no command {args[0]!r}.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        # click's own would load every command, to say what it is about.
        names = [CompletionItem(name, help=what) for name, what in _COMMANDS.items() if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, commands in _SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(_WIDEST), summary) for name, summary in commands.items()])


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="rapkit", message="%(prog)s %(version)s")
def rapkit() -> None:
    """Durable tools and agents that wait without running: the Reactive Agent Protocol."""


def main() -> None:
    """Run the command line. A mistake of the user's is one sentence and exit code 2; one of ours a sentence and exit code 70."""
    with standard_streams():
        _run()


def _run() -> None:
    try:
        # What ends a command early, such as --help, comes back as its exit code; a closed pipe is click's to handle.
        sys.exit(rapkit.main(prog_name="rapkit", standalone_mode=False))
    except RapkitError as error:
        _complain(str(error))
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(_WRONG)
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "rapkit"
        _complain(f"{error.format_message()} See: {command} --help")
    except click.ClickException as error:
        _complain(error.format_message())
    except click.Abort:
        sys.exit(_INTERRUPTED)
    except (OutputLost, BrokenPipeError):  # which are not ours
        raise
    except Exception as error:  # noqa: BLE001 - the last resort
        _complain(sentence_about(error), _UNFORESEEN)


def _complain(problem: str, code: int = _WRONG) -> None:
    text = f"rapkit: {problem}"
    if sys.stderr.isatty():
        text = "\n".join(map(_wrapped, text.splitlines()))
    click.echo(text, err=True)
    sys.exit(code)


def _wrapped(line: str) -> str:
    """A line that the terminal does not break within words; what is to be copied stays whole."""
    width = shutil.get_terminal_size().columns
    return textwrap.fill(line, width, break_long_words=False, break_on_hyphens=False) if len(line) > width else line
