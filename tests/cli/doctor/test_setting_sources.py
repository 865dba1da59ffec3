"""What named a tool server: only what is not in the file has to be corrected elsewhere."""

from pathlib import Path

from rapkit.cli.doctor.setting_sources import SettingSources, servers_outside
from rapkit.settings.settings import Flags, load_settings

FILE = """
[agent]
model = "test"
[[servers]]
url = "http://127.0.0.1:1/"
"""


def test_the_file_counts_first_then_flags_then_the_variable(tmp_path: Path) -> None:
    file = tmp_path / "rapkit.toml"
    file.write_text(FILE)
    flags = Flags(servers=("http://127.0.0.1:1", "http://127.0.0.1:2/"))
    environment = {"RAPKIT_SERVERS": "http://127.0.0.1:1 http://127.0.0.1:2 http://127.0.0.1:3/"}

    sources = SettingSources(servers=servers_outside(file, flags, environment))

    settings = load_settings(file, flags, environment)
    assert {server.base: sources.of(server) for server in settings.servers} == {
        "http://127.0.0.1:1": None,
        "http://127.0.0.1:2": "--server",
        "http://127.0.0.1:3": "RAPKIT_SERVERS",
    }


def test_with_a_file_alone_there_is_nothing_outside(tmp_path: Path) -> None:
    file = tmp_path / "rapkit.toml"
    file.write_text(FILE)

    assert servers_outside(file, Flags(), {}) == {}
