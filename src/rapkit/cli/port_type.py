"""The click type for ports."""

from typing import Any

import click

_LAST = 65535


class _Port(click.IntRange):
    """A number from 0 to 65535. What is none is said in our words: click calls everything that is no number a wrong range."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{str(value)!r} is no port. Give a number from 0 to {_LAST}.", param, ctx)


PORT = _Port(0, _LAST)
"""The type of a `--port`."""
