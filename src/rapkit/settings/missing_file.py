"""The error text for a user without a settings file."""

from pathlib import Path

MINIMAL = """\
[agent]
model = "openai:gpt-5-mini"

[[servers]]
url = "http://127.0.0.1:8001"
"""


ANOTHER_FILE = f"""\
Name one with -c or in RAPKIT_CONFIG, or write it like this:

{MINIMAL}"""


def empty_file_error(path: Path) -> str:
    """What to write into it."""
    return f"{path} is empty, and no model is named. Write into it:\n\n{MINIMAL}"


def missing_file_error(path: Path) -> str:
    """What is missing without a file of this name in the current folder, the smallest one that will do, and how to do without."""
    missing = f"There is no {path} here, and no model is named, so there is no agent to run."
    nearby = _nearby(path)
    if nearby is not None:
        return f"{missing} There is one at {nearby}: go there, or use it from here with -c {nearby}."
    return f"""\
{missing} Write a {path} like this one:

{MINIMAL}
Or do without a file:

rapkit up --model openai:gpt-5-mini --server http://127.0.0.1:8001

New here? `rapkit demo` needs no key and no servers. `rapkit new my_tools` makes a tool server, and a {path} to run it with."""


def _nearby(path: Path) -> Path | None:
    """Where a settings file is, if the user is only in the wrong folder."""
    here = Path.cwd()
    above = next((each / path for each in here.parents if (each / path).is_file()), None)
    return above or next((each.relative_to(here) for each in sorted(here.glob(f"*/{path}"))), None)
