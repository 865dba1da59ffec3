"""Options shared by several commands."""

import click

from rapkit.errors import ConfigError
from rapkit.printable import printable
from rapkit.secret import read_bearer
from rapkit.settings.toml_table import duration

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


def in_seconds(_ctx: click.Context, param: click.Parameter, given: str | None) -> float | None:
    """For options that are a time: 45s, 5m, 1h and 2d are what they say, a bare number is seconds; `ConfigError` if it is none, or 0."""
    if given is None:
        return None
    seconds = duration(given) or duration(f"{given}s")
    if not seconds:
        raise ConfigError(f"{param.opts[0]} {printable(given)} is not a time. Write it like 45s, 5m or 1h.")
    return seconds


def read_token(given: str | None) -> str | None:
    """The token a --token option refers to, if it was given."""
    if given is None:
        return None
    if not given:
        raise ConfigError("--token is empty. Give env:VARIABLE, file:PATH or the token itself.")
    return read_bearer(given)


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


def aws_keys_by_name(keys: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """What several `--aws-key NAME=ID:SECRET` say: secrets by access key id, by the caller's name."""
    named: dict[str, dict[str, str]] = {}
    for each in keys:
        name, _, pair = each.partition("=")
        id, _, secret = pair.partition(":")
        if not (name and id and secret):  # and it is not repeated: it may hold a secret
            raise ConfigError(
                "--aws-key is a name, an access key id and its secret. Write it like agent=AKIDEXAMPLE:env:AGENT_SECRET_KEY."
            )
        named.setdefault(name, {})[id] = secret
    return named


def certificates_by_name(certificates: tuple[str, ...]) -> dict[str, list[str]]:
    """What several `--client-certificate NAME=SUBJECT` say."""
    named: dict[str, list[str]] = {}
    for each in certificates:
        name, _, subject = each.partition("=")
        if not (name and subject):
            raise ConfigError(
                f"--client-certificate {printable(each)} names no caller. Write it like agent=agent.example.com."
            )
        named.setdefault(name, []).append(subject)
    return named
