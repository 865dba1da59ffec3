"""Options that several commands have."""

import click

from rapkit.errors import ConfigError

_LONGEST_NAME_TO_SHOW = 15  # shorter than any token may be

log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Log lines for people or for machines.",
)
log_level = click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    metavar="LEVEL",
    default="info",
    show_default=True,
    help="The least that is logged: debug, info, warning or error.",
)


def tokens_by_name(tokens: tuple[str, ...]) -> dict[str, list[str]]:
    """What several `--token [NAME=]TOKEN` say; a token without a name belongs to `default`."""
    named: dict[str, list[str]] = {}
    for each in tokens:
        name, separator, token = each.partition("=")
        if not each or (separator and not token and len(name) <= _LONGEST_NAME_TO_SHOW):
            raise ConfigError(
                f"--token {each} is empty. Write NAME=env:VARIABLE, NAME=file:PATH or NAME=TOKEN."
                if each
                else "--token is empty. Write env:VARIABLE, file:PATH or the token itself."
            )
        if ":" in name or not token.strip("="):  # env:X, and base64 that ends in "="
            name, token = "default", each
        named.setdefault(name, []).append(token)
    return named
