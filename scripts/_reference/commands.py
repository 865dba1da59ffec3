"""reference/cli.md: every command, as click knows it."""

from collections.abc import Iterator

import click

from rapkit.cli import rapkit
from scripts._reference.markdown import code, paragraphs, plain, table

_HEAD = """# Command line

Every command and option, generated from the code. `rapkit COMMAND --help` prints the same in a terminal.

Usage and configuration errors are printed on standard error, prefixed with `rapkit:`, with exit code 2. Ctrl-C exits with 130. If standard
output cannot be written, rapkit prints one line and exits with 1; if its reader is gone, as in `| head`, it exits with 1 silently. Other
exit codes are listed with their command. rapkit respects `NO_COLOR`, and prints no colors without a terminal. A character that the
terminal's encoding does not support is printed as a question mark.

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
