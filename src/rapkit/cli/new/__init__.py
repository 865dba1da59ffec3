"""`rapkit new`."""

import shlex

import click

from rapkit.cli.new.names import ProjectName
from rapkit.cli.new.project import write_project

_WIDEST = 24


@click.command()
@click.argument("name", type=click.Path())  # which is completed as one
def command(name: str) -> None:
    """Make a folder with a toolset that runs, its tests, and an agent to try it with.

    NAME is what the folder and the toolset are called; it may be a path, or `.` for the current folder.

    \b
    rapkit new my-tools

    Nothing is overwritten: the folder must be empty, if it is there at all.
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    project = ProjectName.of(name)
    files = write_project(project)
    click.echo(f"Made {project.shown_folder} with {', '.join(files)}.\n")
    click.echo("Next:\n")
    for words, why in _next_commands(project):
        click.echo(f"  {words:<{_WIDEST}}  # {why}" if why else f"  {words}")


def _next_commands(project: ProjectName) -> list[tuple[str, str]]:
    go = [] if project.is_here else [(f"cd {shlex.quote(project.shown_folder)}", "")]
    return [
        *go,
        (f"rapkit serve {project.module}.py", "serve the tools"),
        ("rapkit chat", "talk to an agent that uses them, in another terminal"),
        ("python -m unittest", "test them"),
    ]
