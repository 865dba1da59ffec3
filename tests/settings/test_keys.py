"""The list of settings says what is true: which keys there are, how their values are written, and what holds without them."""

import dataclasses
import re
from pathlib import Path

import pytest

from rapkit import ClientCertificate, HttpLimits, Server, SigV4, ThreadLimits
from rapkit.cli.up import command as up
from rapkit.errors import ConfigError
from rapkit.runtime.budget import Budget
from rapkit.runtime.config import Capacity
from rapkit.runtime.schedules import Schedule
from rapkit.settings.keys import REQUIRED, TABLES, VARIABLES, Key, KeyTable, key_names, key_table
from rapkit.settings.settings import Settings, load_settings
from tests.certificates import Authority

SOURCE = Path(__file__).parents[2] / "src"
ALTERNATIVES = ("servers.sigv4", "servers.client_certificate")
"""What may not stand below one server together, nor with a token."""
TOGETHER = tuple(table for table in TABLES if table.name not in ALTERNATIVES)
EVERYWHERE = [pytest.param(table, key, id=f"{table.name}.{key.name}") for table in TABLES for key in table.keys]


def written(*tables: KeyTable) -> str:
    return "\n".join(
        f"{table.title}\n" + "".join(f"{key.name} = {key.example}\n" for key in table.keys) for table in tables
    )


def load(folder: Path, text: str) -> Settings:
    (folder / "instructions.md").write_text("Be brief.")
    (folder / "rapkit.toml").write_text(text)
    return load_settings(folder / "rapkit.toml", environment={})


def test_the_examples_together_are_a_file_that_can_be_loaded(tmp_path: Path) -> None:
    loaded = load(tmp_path, written(*TOGETHER))

    assert loaded.model == "openai:gpt-5-mini"
    secret = ("env:WEATHER_WEBHOOK_SECRET",)
    assert loaded.servers[0] == Server("http://127.0.0.1:8001", "env:WEATHER_TOKEN", "w_", True, "weather", secret)
    assert loaded.tokens == {"NAME": ["env:MY_TOKEN"]}
    assert loaded.limits.timeouts.tools == {"TOOL": 30.0}
    assert loaded.limits.confirmations.tools == {"TOOL": "remembered"}
    assert loaded.budget is not None
    assert loaded.schedules[0].name == "morning"


def test_a_key_is_required_exactly_if_it_says_so(tmp_path: Path) -> None:
    for table in TOGETHER:
        for key in table.keys:
            kept = tuple(each for each in table.keys if each is not key)
            tables = [dataclasses.replace(each, keys=kept) if each is table else each for each in TOGETHER]
            if key.default == REQUIRED:
                with pytest.raises(ConfigError, match=f'"{key.name}" is missing in '):
                    load(tmp_path, written(*tables))
            else:
                load(tmp_path, written(*tables))


def with_server(table: KeyTable) -> str:
    return f'[agent]\nmodel = "openai:gpt-5-mini"\n[[servers]]\nurl = "https://tools.example.com"\n{written(table)}'


def test_a_server_can_be_shown_a_signature_or_a_client_certificate(tmp_path: Path) -> None:
    """Item 18."""
    authority = Authority(tmp_path)
    pair = authority.sign("agent", "agent")
    sigv4, files = (key_table(name) for name in ALTERNATIVES)

    assert load(tmp_path, with_server(sigv4)).servers[0].auth == SigV4(
        "eu-central-1", "lambda", "env:TOOLS_ACCESS_KEY_ID", "env:TOOLS_SECRET_ACCESS_KEY"
    )
    assert load(tmp_path, with_server(files)).servers[0].auth == ClientCertificate(pair.cert, pair.key, authority.ca)
    with pytest.raises(ConfigError, match="two ways to be known"):
        load(tmp_path, with_server(sigv4) + written(files))
    for table, key in ((sigv4, "region"), (files, "cert")):
        kept = tuple(each for each in table.keys if each.name != key)
        with pytest.raises(ConfigError, match=f'"{key}" is missing in '):
            load(tmp_path, with_server(dataclasses.replace(table, keys=kept)))


def said(value: object) -> str:
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:,}`" if isinstance(value, int) else f"`{value}`"


@pytest.mark.parametrize("key", key_table("agent.limits").keys, ids=lambda key: key.name)
def test_the_default_of_a_limit_is_the_one_it_says(key: Key) -> None:
    value = getattr(ThreadLimits(), key.name)

    if key.name == "remember_expired":
        assert (key.default, value) == ("`4d`", 4 * 86400)
    elif value is None:
        assert key.default in ("no limit", "never")
    else:
        assert key.default == said(value)


@pytest.mark.parametrize("key", key_table("agent.capacity").keys, ids=lambda key: key.name)
def test_the_default_of_a_capacity_is_the_one_it_says(key: Key) -> None:
    value = getattr(Capacity(), key.name)

    assert key.default == (f"`{value:g}s`" if isinstance(value, float) else said(value))


@pytest.mark.parametrize("key", key_table("agent.capacity.http").keys, ids=lambda key: key.name)
def test_the_default_of_an_http_limit_is_the_one_it_says(key: Key) -> None:
    value = getattr(HttpLimits(), key.name)

    assert key.default == (f"`{value:g}s`" if isinstance(value, float) else said(value))


def test_other_defaults_are_those_it_says() -> None:
    settings, schedule = Settings("test"), Schedule("* * * * *", "Look.")
    values: dict[str, dict[str, object]] = {
        "agent": {"store": settings.store, "host": settings.host},
        "agent.confirm": {"destructive": settings.limits.confirmations.destructive},
        "agent.budget": {"per": Budget(slices=1).per},
        "servers": {"allow_http": Server("http://127.0.0.1:1").allow_http},
        "schedule": {"zone": schedule.zone, "new_thread": schedule.new_thread},
    }

    for table in TABLES:
        for key in table.keys:
            if key.name in values.get(table.name, {}):
                assert key.default == said(values[table.name][key.name]), key.name
    assert next(key.default for key in key_table("agent").keys if key.name == "port") == f"`{settings.port}`"


def test_no_limit_is_left_out() -> None:
    elsewhere = {"context_window", "timeouts", "confirmations"}

    assert {field.name for field in dataclasses.fields(ThreadLimits)} - elsewhere == set(key_names("agent.limits"))
    assert {field.name for field in dataclasses.fields(Capacity)} == set(key_names("agent.capacity"))
    assert {field.name for field in dataclasses.fields(HttpLimits)} == set(key_names("agent.capacity.http"))


def test_tables_are_found_within_tables() -> None:
    assert key_names("") == ("agent", "servers", "schedule")
    assert key_names("agent")[-6:] == ("tokens", "call_timeouts", "confirm", "budget", "limits", "capacity")
    assert key_names("agent.confirm") == ("destructive", "tools")
    assert key_names("agent.tokens") == ()
    assert [table.title for table in TABLES if table.repeated] == ["[[servers]]", "[[schedule]]"]


@pytest.mark.parametrize(("table", "key"), EVERYWHERE)
def test_a_key_is_explained_in_a_sentence(table: KeyTable, key: Key) -> None:
    assert re.fullmatch(r"[A-Z0-9`].*\.", key.about), key.about
    assert table.about.endswith(".")
    assert key.kind
    assert key.default


def test_flags_are_those_of_rapkit_up_and_variables_are_explained() -> None:
    options = {option for parameter in up.params for option in parameter.opts}
    keys = [key for table in TABLES for key in table.keys]

    assert {key.flag for key in keys if key.flag} <= options
    assert {key.variable for key in keys if key.variable} <= {variable.name for variable in VARIABLES}


def test_every_variable_that_is_read_is_explained() -> None:
    read = {
        name
        for file in SOURCE.rglob("*.py")
        if file != SOURCE / "rapkit/settings/keys.py"
        for name in re.findall(r"\bRAP(?:KIT)?_[A-Z]+(?:_[A-Z]+)*\b", file.read_text())
        if not name.startswith("RAPKIT_DEMO_")  # what the demo tells its own servers
    }

    assert read == {variable.name for variable in VARIABLES}
