"""What has to be installed for more than the core, and how."""

import json
from importlib import metadata
from urllib.parse import unquote, urlsplit


def how_to_install(extra: str) -> str:
    """The command that adds an extra to this installation, from where the rest of it came: an index, or a folder."""
    return f'pip install "{_source()}[{extra}]"'


def _source() -> str:
    try:
        origin = metadata.distribution("rapkit").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    url = urlsplit(json.loads(origin).get("url", "") if origin else "")
    return unquote(url.path) if url.scheme == "file" else "rapkit"
