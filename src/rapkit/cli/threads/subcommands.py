"""A click group that requires a subcommand."""

import click


class Subcommands(click.Group):
    """Options are those of the subcommands: who gives one too early is told where it goes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Split what was given into ours, which is nothing, and the subcommand's."""
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            theirs = [each for each, command in self.commands.items() if _has(command, name)]
            if not theirs:
                raise
            raise click.UsageError(
                f"{name} goes after the subcommand: {ctx.command_path} {theirs[0]} {name} …", ctx
            ) from None


def _has(command: click.Command, option: str) -> bool:
    return any(option in (*each.opts, *each.secondary_opts) for each in command.params)
