"""reference/cli.md: every command, as click knows it."""

from collections.abc import Iterator

import click

from rapkit.cli import rapkit
from scripts._reference.markdown import code, paragraphs, plain, table

_HEAD = """# Command line

Every command and every option, made from the commands themselves; `rapkit COMMAND --help` says the same in a terminal.

A mistake in what is typed or configured is told on standard error, after `rapkit:`, and the exit code is 2. Ctrl-C ends with 130. If
standard output cannot be written, that is told in a line, and the exit code is 1; if its reader has gone, as in `| head`, it is 1 without a
word. Other exit codes stand with their command. `NO_COLOR` is respected, and without a terminal there are no colours at all. A letter that
the terminal's encoding has not is printed as a question mark.

"""


def cli_page() -> str:
    """The page."""
    parts = [_HEAD]
    listed: list[tuple[str, str]] = []
    for context in walk(click.Context(rapkit, info_name="rapkit")):
        path, command = context.command_path, context.command
        if context.parent is not None:
            listed.append((f"[`{path}`](#{path.replace(' ', '-')})", plain(command.get_short_help_str(200))))
        parts.append(_command(context))
    parts.insert(1, table(("command", ""), listed))
    return "".join(parts)


def walk(context: click.Context) -> Iterator[click.Context]:
    """A command, and all that are below it, each in a context of its own."""
    yield context
    command = context.command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            if below is not None and not below.hidden:
                yield from walk(click.Context(below, info_name=name, parent=context))


def _command(context: click.Context) -> str:
    command = context.command
    level = "#" * max(2, 1 + context.command_path.count(" "))
    usage = " ".join(command.collect_usage_pieces(context))
    return (
        f"{level} {context.command_path}\n\n"
        f"```text\n{context.command_path} {usage}\n```\n\n"
        + paragraphs(command.help or "")
        + table(("option", "", "default", "variable"), _options(context))
    )


def _options(context: click.Context) -> Iterator[tuple[str, str, str, str]]:
    for option in context.command.get_params(context):
        record = option.get_help_record(context)
        if not isinstance(option, click.Option) or record is None or "--help" in option.opts:
            continue
        extra = option.get_help_extra(context)
        about = (option.help or "").partition("  [default:")
        default = extra.get("default", "") or about[2].strip(" ]")
        needed = " Required." if option.required else ""
        yield code(record[0]), plain(about[0]) + needed, code(str(default)), code(", ".join(_variables(option)))


def _variables(option: click.Option) -> tuple[str, ...]:
    if option.envvar is None:
        return ()
    return (option.envvar,) if isinstance(option.envvar, str) else tuple(option.envvar)
