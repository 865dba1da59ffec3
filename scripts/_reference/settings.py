"""reference/config.md: every key of rapkit.toml, every variable of the environment."""

from rapkit.settings.keys import TABLES, VARIABLES, Key, KeyTable
from scripts._reference.markdown import code, table

_HEAD = """# Configuration

Every table and key of `rapkit.toml`, and every environment variable, generated from the definitions that rapkit validates them with.
Options override variables, and variables override the file. Paths in the file are relative to its folder. An example with all keys follows
each table. For a guide, see [Build an agent](../howto/build_an_agent.md).

"""


def config_page() -> str:
    """The page."""
    variables = table(("variable", ""), ((code(each.name), each.about) for each in VARIABLES))
    return _HEAD + "".join(map(_table, TABLES)) + "## Environment\n\n" + variables


def _table(described: KeyTable) -> str:
    named = " You choose the names." if described.open else ""
    example = "\n".join([described.title, *(f"{key.name} = {key.example}" for key in described.keys)])
    keys = table(
        ("key", "value", "default", "meaning"),
        ((code(key.name), key.kind, key.default, key.about + _elsewhere(key)) for key in described.keys),
    )
    return f"## {code(described.title)}\n\n{described.about}{named}\n\n{keys}```toml\n{example}\n```\n\n"


def _elsewhere(key: Key) -> str:
    places = [code(each) for each in (key.variable, key.flag) if each]
    return f" Also {', '.join(places)}." if places else ""
