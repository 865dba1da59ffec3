"""Optional dependencies: which extra a feature needs, and how to install it."""

import json
from importlib import metadata
from urllib.parse import unquote, urlsplit


def how_to_install(extra: str) -> str:
    """The command that adds an extra to this installation: from the folder that the rest of it came from, or from an index."""
    try:
        found = metadata.distribution("rapkit").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        found = None
    origin = json.loads(found) if found else {}
    url = urlsplit(origin.get("url", ""))
    source = unquote(url.path) if url.scheme == "file" else "rapkit"
    editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
    return f'pip install {editable}"{source}[{extra}]"'
