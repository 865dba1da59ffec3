"""Names of the additional lanes of a box, which can be found without knowing the id of the box."""

from urllib.parse import quote

from rapkit.mailbox.box import Box


def lane_under(box: Box, what: str) -> str:
    """A lane of the box for one purpose: `parent/name/id/what`. It outlives the box, and `Store.stop` of parent and name still ends it."""
    return f"{lanes_of_box(box.parent, box.name, box.id)}/{what}"


def lanes_of_box(parent: str | None, name: str | None, id: str) -> str:
    """What the lanes under one box begin with, before a slash."""
    return f"{lanes_of_name(parent, name)}/{id}"


def lanes_of_name(parent: str | None, name: str | None) -> str:
    """What the lanes under all boxes of this parent and name begin with, before a slash; those of the living and of the ended ones."""
    # Quoted, because names are chosen by peers: a slash in one must not reach the lanes of another.
    return f"{parent or ''}/{quote(name or '', safe='')}"
