"""`rapkit completion`."""

import os
from pathlib import PurePath

import click
from click.shell_completion import BashComplete, FishComplete, ShellComplete, ZshComplete

_SHELLS: dict[str, type[ShellComplete]] = {"bash": BashComplete, "zsh": ZshComplete, "fish": FishComplete}
_WAYS = {
    "bash": """\
rapkit completion bash > ~/.rapkit-completion.bash
echo 'source ~/.rapkit-completion.bash' >> ~/.bashrc""",
    "zsh": """\
rapkit completion zsh > ~/.rapkit-completion.zsh
echo 'source ~/.rapkit-completion.zsh' >> ~/.zshrc    # behind the line with compinit""",
    "fish": """\
mkdir -p ~/.config/fish/completions
rapkit completion fish > ~/.config/fish/completions/rapkit.fish""",
}


@click.command()
@click.argument("shell", required=False, type=click.Choice(list(_SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str | None) -> None:
    """Print the script with which a shell completes rapkit's commands, options and files with the Tab key.

    \b
    eval "$(rapkit completion bash)"     try it, in this terminal
    rapkit completion                    how to have it in every terminal
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    if shell is None:
        click.echo(_how_to_install(PurePath(os.environ.get("SHELL", "")).name))
        return
    root = ctx.find_root()
    name = root.info_name or "rapkit"
    click.echo(_SHELLS[shell](root.command, {}, name, f"_{name}_COMPLETE".replace("-", "_").upper()).source())


def _how_to_install(shell: str) -> str:
    shells = [shell] if shell in _WAYS else list(_WAYS)
    ways = [f"In {each}, do this once, then open a new terminal:\n\n{_indented(_WAYS[each])}\n" for each in shells]
    if len(shells) == 1:
        others = ", ".join(f"rapkit completion {each}" for each in _WAYS if each != shell)
        ways.append(f"Scripts for other shells: {others}")
    return "\n".join(ways).rstrip()


def _indented(lines: str) -> str:
    return "\n".join(f"    {line}" for line in lines.splitlines())
