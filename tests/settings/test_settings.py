"""`rapkit.toml`, the environment and flags: what they say together, and what is said when that cannot be."""

import asyncio
from pathlib import Path

import pytest

from rapkit import HttpLimits, Server, ThreadLimits
from rapkit.errors import ConfigError
from rapkit.kernel.limits import Confirmations, Timeouts
from rapkit.runtime.budget import Budget
from rapkit.runtime.config import Capacity
from rapkit.runtime.schedules import Schedule
from rapkit.settings.missing_file import MINIMAL
from rapkit.settings.settings import Flags, Settings, load_settings

MODEL = '[agent]\nmodel = "openai:gpt-5-mini"\n'
LOOK = '[[schedule]]\ncron = "0 9 * * MON-FRI"\nmessage = "Look."\n'
SECRET = "xyzzy-xyzzy-xyzzy-xyzzy"

EVERYTHING = """
[agent]
model = "openai:gpt-5-mini"
instructions = "Be brief."
store = "sqlite:////var/lib/agent.db"
public_url = "https://agent.example.com"
host = "0.0.0.0"
port = 9000
context_window = 200000
call_timeout = "24h"
long_running_timeout = "7d"

[agent.call_timeouts]
build = "90m"
deploy = 600
approve = "off"

[agent.confirm]
destructive = "remembered"
tools = { deploy = "always", clean = "never" }

[agent.budget]
tokens = 1000000
cost = 5
per = "month"

[agent.tokens]
me = "env:MY_TOKEN"
app = ["env:NEW", "env:OLD"]

[agent.limits]
subscriptions = 3
children = 4
depth = 2
views = 5
mistakes = 6
attempts = 7
window = 100
cancel_on_interrupt = true
cancel_on_close = false
remember_expired = 60
slices = 100
tokens = 200000
cost = 1.5
compaction = false
question_timeout = "3d"

[agent.capacity]
threads = 10
callback = 2_000_000

[agent.capacity.http]
connections = 20
idle_seconds = "90s"

[[servers]]
url = "https://weather.example.com"
token = "env:WEATHER_TOKEN"
prefix = "w_"
name = "weather"

[[servers]]
url = "http://tools.internal:8001"
allow_http = true

[[schedule]]
cron = "0 9 * * MON-FRI"
message = "Summarise what is new."
zone = "Europe/Berlin"
name = "morning"
user_id = "u1"
new_thread = true

[[schedule]]
cron = "*/10 * * * *"
message = "Look."
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "rapkit.toml"


def settings(file: Path, text: str, flags: Flags | None = None, **environment: str) -> Settings:
    file.write_text(text)
    return load_settings(file, flags, environment)


def refusal(file: Path, text: str, flags: Flags | None = None, **environment: str) -> str:
    """What is said about this file, which is named first."""
    with pytest.raises(ConfigError) as refused:
        settings(file, text, flags, **environment)
    return str(refused.value).replace(str(file), "rapkit.toml").replace(str(file.parent), "FOLDER")


def test_everything_that_can_be_said(file: Path) -> None:
    assert settings(file, EVERYTHING) == Settings(
        model="openai:gpt-5-mini",
        instructions="Be brief.",
        store="sqlite:////var/lib/agent.db",
        public_url="https://agent.example.com",
        host="0.0.0.0",
        port=9000,
        tokens={"me": ["env:MY_TOKEN"], "app": ["env:NEW", "env:OLD"]},
        limits=ThreadLimits(
            subscriptions=3,
            children=4,
            depth=2,
            views=5,
            mistakes=6,
            attempts=7,
            window=100,
            cancel_on_interrupt=True,
            cancel_on_close=False,
            remember_expired=60.0,
            slices=100,
            tokens=200_000,
            cost=1.5,
            compaction=False,
            question_timeout=3 * 86400.0,
            context_window=200_000,
            timeouts=Timeouts(86400.0, 7 * 86400.0, {"build": 5400.0, "deploy": 600.0, "approve": None}),
            confirmations=Confirmations("remembered", {"deploy": "always", "clean": "never"}),
        ),
        capacity=Capacity(threads=10, callback=2_000_000, http=HttpLimits(connections=20, idle_seconds=90.0)),
        budget=Budget(tokens=1_000_000, cost=5.0, per="month"),
        schedules=(
            Schedule(
                "0 9 * * MON-FRI",
                "Summarise what is new.",
                zone="Europe/Berlin",
                name="morning",
                user_id="u1",
                new_thread=True,
            ),
            Schedule("*/10 * * * *", "Look."),
        ),
        servers=(
            Server("https://weather.example.com", token="env:WEATHER_TOKEN", prefix="w_", name="weather"),
            Server("http://tools.internal:8001", allow_http=True),
        ),
    )


def test_what_is_not_said_has_a_default(file: Path) -> None:
    assert settings(file, MINIMAL) == Settings(
        model="openai:gpt-5-mini",
        servers=(Server("http://127.0.0.1:8001"),),
        store=f"sqlite:///{file.parent}/.rapkit/agent.db",
        host="127.0.0.1",
        port=8700,
    )


def test_paths_in_the_file_are_relative_to_its_folder(
    tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plan.yaml").write_text("- say: Hello.\n")
    (tmp_path / "you.md").write_text("You are ünique.\n")
    (tmp_path / "token").write_text(f"{SECRET}\n")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    file.write_text(
        """
        [agent]
        model = "scripted:plan.yaml"
        instructions = "file:you.md"
        store = "sqlite:///agent.db"
        tokens = { me = "file:token" }
        [[servers]]
        url = "http://127.0.0.1:8001"
        token = "file:token"
        """
    )

    found = load_settings(Path("../rapkit.toml"), environment={})

    assert found.model == "scripted:../plan.yaml"
    assert found.instructions == "You are ünique.\n"
    assert found.store == "sqlite:///../agent.db"
    assert found.tokens == {"me": ["file:../token"]}
    assert asyncio.run(found.servers[0].headers("GET", found.servers[0].base)) == {"authorization": f"Bearer {SECRET}"}
    assert found.agent().model.name == "scripted:../plan.yaml"


@pytest.mark.parametrize("store", ["sqlite:///:memory:", "sqlite:////var/lib/agent.db", "postgresql://db/agent"])
def test_a_store_that_is_no_relative_path_stays_what_it_is(file: Path, store: str) -> None:
    assert settings(file, f'{MODEL}store = "{store}"').store == store


def test_flags_win_over_the_environment_and_that_over_the_file(file: Path) -> None:
    environment = {
        "RAPKIT_MODEL": "scripted:their.yaml",
        "RAPKIT_STORE": "sqlite:///their.db",
        "RAPKIT_PUBLIC_URL": "https://their.example.com",
    }
    theirs = settings(file, EVERYTHING, None, **environment)
    flags = Flags(
        model="test",
        store="sqlite:///our.db",
        public_url="https://our.example.com",
        host="::1",
        port=0,
        tokens={"us": [SECRET]},
    )
    ours = settings(file, EVERYTHING, flags, **environment)

    assert (theirs.model, theirs.store) == ("scripted:their.yaml", "sqlite:///their.db")
    assert (theirs.public_url, theirs.host, theirs.port) == ("https://their.example.com", "0.0.0.0", 9000)
    assert (ours.model, ours.store, ours.public_url) == ("test", "sqlite:///our.db", "https://our.example.com")
    assert (ours.host, ours.port, ours.tokens) == ("::1", 0, {"us": [SECRET]})


def test_a_model_may_come_from_outside_alone_and_an_empty_variable_is_none(file: Path) -> None:
    assert settings(file, "", RAPKIT_MODEL="test").model == "test"
    assert settings(file, MODEL, RAPKIT_MODEL="").model == "openai:gpt-5-mini"


@pytest.mark.parametrize("flags", [None, Flags(model="test")], ids=["without-flags", "with-a-model"])
def test_without_the_file_that_was_named_there_is_one_to_copy(tmp_path: Path, flags: Flags | None) -> None:
    """Who names a file means that one: that there is a model does not make up for it."""
    with pytest.raises(ConfigError) as refused:
        load_settings(tmp_path / "rapkit.toml", flags, environment={})

    first, _, example = str(refused.value).partition("\n\n")
    assert first.startswith(
        f"There is no file {tmp_path}/rapkit.toml. Name one with -c or in RAPKIT_CONFIG, or write it"
    )
    (tmp_path / "rapkit.toml").write_text(example)
    assert load_settings(tmp_path / "rapkit.toml", environment={}).servers == (Server("http://127.0.0.1:8001"),)


def test_without_any_file_a_model_is_all_that_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    flags = Flags(model="test", servers=("http://127.0.0.1:8001", "http://127.0.0.1:8002/"))

    assert load_settings(environment={"RAPKIT_MODEL": "test"}) == Settings("test")
    assert load_settings(flags=flags, environment={}) == Settings(
        "test", servers=(Server("http://127.0.0.1:8001"), Server("http://127.0.0.1:8002/"))
    )
    with pytest.raises(ConfigError, match=r"^--model is empty"):
        load_settings(flags=Flags(model=""), environment={})


def test_without_a_file_and_a_model_it_says_what_is_missing_and_what_else_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError) as refused:
        load_settings(flags=Flags(servers=("http://127.0.0.1:8001",)), environment={})

    said = str(refused.value)
    assert said.startswith("There is no rapkit.toml here, and no model is named, so there is no agent to run. Write")
    assert MINIMAL in said
    assert "rapkit up --model openai:gpt-5-mini --server http://127.0.0.1:8001" in said
    assert "`rapkit demo`" in said
    assert "`rapkit new my_tools`" in said


@pytest.mark.parametrize(
    ("here", "there", "named"), [("a/b", "rapkit.toml", "{}/rapkit.toml"), (".", "b/rapkit.toml", "b/rapkit.toml")]
)
def test_one_that_is_in_another_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: str, there: str, named: str
) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / there).touch()
    monkeypatch.chdir(tmp_path / here)

    with pytest.raises(ConfigError) as refused:
        load_settings(environment={})

    found = named.format(tmp_path)
    assert f"There is one at {found}: go there, or use it from here with -c {found}." in str(refused.value)


def test_a_link_to_nowhere_is_not_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rapkit.toml").symlink_to("gone.toml")

    with pytest.raises(ConfigError, match=r"^There is no file rapkit\.toml\."):
        load_settings(environment={"RAPKIT_MODEL": "test"})


def test_servers_named_outside_come_after_those_of_the_file(file: Path) -> None:
    text = f'{MODEL}[[servers]]\nurl = "http://tools.internal:8001"\nallow_http = true\nprefix = "t_"\n'
    flags = Flags(servers=("http://127.0.0.1:8003", "http://tools.internal:8001/"))

    found = settings(file, text, flags, RAPKIT_SERVERS="http://127.0.0.1:8002\n http://127.0.0.1:8003/ ")

    assert found.servers == (
        Server("http://tools.internal:8001", allow_http=True, prefix="t_"),  # as the file has it
        Server("http://127.0.0.1:8003"),
        Server("http://127.0.0.1:8002"),
    )


def test_a_server_named_outside_that_cannot_be_is_named(file: Path) -> None:
    told = refusal(file, MODEL, Flags(servers=("weather",)), RAPKIT_SERVERS="http://10.0.0.1").splitlines()

    assert told[0].startswith(
        "--server: 'weather' is not the URL of a tool server. Write it like http://127.0.0.1:8001"
    )
    assert told[1].startswith("RAPKIT_SERVERS: http://10.0.0.1 is plain http to another machine")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[agent]\n", 'rapkit.toml: "model" is missing in [agent]. Write one, such as model = "openai:gpt-5-mini"'),
        ("", "rapkit.toml is empty, and no model is named. Write into it:\n\n[agent]\nmodel = "),
        ('model = "test"\n', "rapkit.toml: there is no key 'model'. It belongs below [agent]. Possible are: agent, servers,"),
        (f"{MODEL}[agent.limits]\nport = 5\n", "no key 'port' in [agent.limits]. It belongs below [agent]. Possible are: calls,"),
        (f"{MODEL}name = 5\n", "no key 'name' in [agent]. It belongs below [[servers]] or [[schedule]]. Possible"),
        ("[agent]\nmodel = gpt\n", "rapkit.toml is not TOML: Invalid value (at line 2, column 9)"),
        ('[agent]\nmodle = "x"\n', "rapkit.toml: there is no key 'modle' in [agent]. Did you mean 'model'?"),
        ("[agents]\n", "rapkit.toml: there is no key 'agents'. Did you mean 'agent'? Possible are: agent, servers, schedule."),
        ("[storm]\n", "rapkit.toml: there is no key 'storm'. Possible are: agent, servers, schedule."),
        (f'{MODEL}weather = "fine"\n', "rapkit.toml: there is no key 'weather' in [agent]. Possible are: model,"),
        ("[agent]\nmodel = 5\n", 'rapkit.toml: "model" in [agent] is 5. It has to be a text in quotes.'),
        ('[agent]\nmodel = ""\n', "It has to be a text that is not empty."),
        ("[[agent]]\n", 'rapkit.toml: "agent" is a table. Write it as [agent].'),
        (f'{MODEL}port = "8700"\n', "\"port\" in [agent] is '8700'. It has to be a whole number from 0 to 65535."),
        (f"{MODEL}port = 65536\n", "It has to be a whole number from 0 to 65535."),
        (f"{MODEL}port = true\n", "It has to be a whole number from 0 to 65535."),
        (f"{MODEL}limits = 5\n", '"limits" in [agent] is a table. Write it as [agent.limits].'),
        (f"{MODEL}[agent.limits]\nwindows = 5\n", "no key 'windows' in [agent.limits]. Did you mean 'window'?"),
        (f"{MODEL}[agent.limits]\nwindow = 0\n", '"window" in [agent.limits] is 0. It has to be a whole number from 1.'),
        (f"{MODEL}[agent.capacity]\nthreads = 0\n", '"threads" in [agent.capacity] is 0. It has to be a whole number from 1.'),
        (f"{MODEL}[agent.limits]\nchildren = -1\n", "It has to be a whole number from 0."),
        (f"{MODEL}[agent.limits]\ncancel_on_interrupt = 1\n", "It has to be true or false."),
        (f"{MODEL}[agent.limits]\nremember_expired = inf\n", 'It has to be a number of seconds, or a time like "90s",'),
        (f'{MODEL}[agent.limits]\nquestion_timeout = "a week"\n', 'It has to be a number of seconds above 0, or a time like'),
        (f"{MODEL}[agent.limits]\ntokens = 0\n", "It has to be a whole number from 1."),
        (f"{MODEL}[agent.limits]\ncost = 0\n", "It has to be a number above 0."),
        (f"{MODEL}[agent.limits]\ntimeouts = 5\n", "there is no key 'timeouts' in [agent.limits]."),
        (f'{MODEL}call_timeout = "5 minutes"\n', '"7d", or "off".'),
        (f"{MODEL}call_timeout = 0\n", '"call_timeout" in [agent] is 0. It has to be a number of seconds above 0'),
        (f"{MODEL}call_timeout = true\n", '"call_timeout" in [agent] is True. It has to be'),
        (f'{MODEL}call_timeouts = "5m"\n', '"call_timeouts" in [agent] is a table. Write it as [agent.call_timeouts].'),
        (f'{MODEL}[agent.call_timeouts]\nbuild = "5x"\n', "\"build\" in [agent.call_timeouts] is '5x'. It has to be"),
        (f"{MODEL}context_window = 0.5\n", "It has to be a whole number from 1."),
        (f'{MODEL}[agent.confirm]\ndestructive = "yes"\n', "It has to be one of: always, remembered, never."),
        (f"{MODEL}[agent.confirm.tools]\nbuild = [1]\n", '"build" in [agent.confirm.tools] is [1]. It has to be one of: always,'),
        (f'{MODEL}[agent.confirm]\nbuild = "never"\n', "no key 'build' in [agent.confirm]. Possible are: destructive, tools."),
        (f'{MODEL}[agent.budget]\nper = "day"\n', "rapkit.toml, [agent.budget]: A budget without a limit limits nothing."),
        (f'{MODEL}[agent.budget]\ncost = 5\nper = "week"\n', "It has to be one of: hour, day, month, total."),
        (f'{MODEL}[agent.budget]\ncost = "5"\n', "It has to be a number above 0."),
        (f'{MODEL}[agent.budget]\nmoney = 5\n', "no key 'money' in [agent.budget]."),
        (f'{MODEL}[schedule]\ncron = "0 9 * * *"\n', "Write [[schedule]] with two brackets for each"),
        (f'{MODEL}[[schedule]]\nmessage = "Look."\n', '"cron" is missing in [[schedule]] number 1. Write it like cron = "0 9'),
        (f'{MODEL}[[schedule]]\ncron = "0 9 * * *"\n', '"message" is missing in [[schedule]] number 1.'),
        (f'{MODEL}{LOOK}when = "now"\n', "no key 'when' in [[schedule]] number 1. Possible are: cron, message, zone,"),
        (f'{MODEL}{LOOK}zone = "Berlin"\n', "rapkit.toml, [[schedule]] number 1: 'Berlin' is no time zone."),
        (f'{MODEL}{LOOK}new_thread = "yes"\n', "It has to be true or false."),
        (f'{MODEL}{LOOK}user_id = ""\n', "It has to be a text that is not empty."),
        (f"{MODEL}{LOOK}{LOOK}", "rapkit.toml, [[schedule]]: Two schedules are the same."),
        (f'{MODEL}public_url = "agent.example.com"\n', 'rapkit.toml, "public_url" in [agent]: \'agent.example.com\' is not'),
        (f'{MODEL}public_url = "https://[::1"\n', "is not a public URL. Write it in full"),
        (f'{MODEL}public_url = "https://x:y"\n', "is not a public URL. Write it in full"),
        (f'{MODEL}instructions = "file:you.md"\n', "are to come from FOLDER/you.md, which cannot be read: No such file"),
        (f'{MODEL}[servers]\nurl = "http://127.0.0.1:1"\n', "Write [[servers]] with two brackets for each"),
        (f'servers = ["http://127.0.0.1:1"]\n{MODEL}', "Write [[servers]] with two brackets for each"),
        (f"{MODEL}[[servers]]\n", 'rapkit.toml: "url" is missing in [[servers]] number 1. Write it like url ='),
        (f'{MODEL}[[servers]]\nurls = "x"\n', "no key 'urls' in [[servers]] number 1. Did you mean 'url'?"),
        (f'{MODEL}[[servers]]\nurl = "weather"\n', "rapkit.toml, [[servers]] number 1: 'weather' is not the URL of a tool"),
        (f'{MODEL}[[servers]]\nurl = "http://[::1"\n', "is not the URL of a tool server: Invalid IPv6 URL."),
        (f'{MODEL}[[servers]]\nurl = "http://127.0.0.1:x"\n', "is not the URL of a tool server: Port could"),
        (f'{MODEL}[[servers]]\nurl = "http://10.0.0.1"\n', "plain http to another machine"),
        (f'{MODEL}[[servers]]\nurl = "http://127.0.0.1"\nallow_http = "yes"\n', "It has to be true or false."),
    ],
)  # fmt: skip
def test_what_cannot_be_is_named_with_what_can(file: Path, text: str, said: str) -> None:
    told = refusal(file, text)

    assert said in told
    assert told.startswith("rapkit.toml")


def test_all_mistakes_of_a_file_are_told_at_once(file: Path) -> None:
    text = """
        [agent]
        modle = "openai:gpt-5-mini"
        port = "8700"
        call_timeout = "soon"
        [agent.limits]
        window = 0
        views = -1
        [agent.confirm.tools]
        clean = "no"
        [[servers]]
        url = "weather"
        [[servers]]
        ulr = "http://127.0.0.1:8001"
        token = 5
        prefix = 6
        [[schedule]]
        cron = "0 9 * *"
        message = "Look."
        [[schedule]]
        new_thread = "yes"
        zone = 7
        [agent.budget]
        slices = 0
        per = "week"
        """

    told = refusal(file, text, Flags(store="")).splitlines()

    assert all(line.startswith(("rapkit.toml", "--store")) for line in told)
    for mistake in (
        "'modle'",
        '"model" is missing',
        '"port"',
        '"call_timeout"',
        '"window"',
        '"views"',
        '"clean"',
        "'weather'",
    ):
        assert len([line for line in told if mistake in line]) == 1, mistake
    for mistake in (
        "'ulr'",
        '"url" is missing in [[servers]] number 2',
        '"token" in [[servers]]',
        '"prefix"',
        "'0 9 * *'",
        '"cron" is missing in [[schedule]] number 2',
        '"message" is missing in [[schedule]] number 2',
        '"new_thread"',
        '"zone"',
        '"slices"',
        '"per"',
        "--store is empty",
    ):
        assert len([line for line in told if mistake in line]) == 1, mistake
    assert len(told) == 20


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("", (None, None)),
        ('call_timeout = "5m"', (300.0, 3000.0)),
        ("call_timeout = 1.5", (1.5, 15.0)),
        ('call_timeout = "5m"\nlong_running_timeout = "off"', (300.0, None)),
        ('long_running_timeout = "2d"', (None, 2 * 86400.0)),
        ('call_timeout = "off"', (None, None)),
        ('call_timeout = "off"\nlong_running_timeout = "1.5h"', (None, 5400.0)),
    ],
)
def test_calls_of_tools_that_take_long_have_ten_times_as_long(
    file: Path, said: str, expected: tuple[float | None, float | None]
) -> None:
    timeouts = settings(file, f"{MODEL}{said}\n").limits.timeouts
    assert (timeouts.of("any", long_running=False), timeouts.of("any", long_running=True)) == expected


def test_what_is_configured_is_what_the_agent_is_made_of(tmp_path: Path, file: Path) -> None:
    (tmp_path / "plan.yaml").write_text("- say: Hello.\n")
    text = f'[agent]\nmodel = "scripted:plan.yaml"\ncall_timeout = "5m"\n[agent.budget]\ncost = 5\n{LOOK}'

    agent = settings(file, text).agent()

    assert agent.limits.timeouts.call == 300.0
    assert agent.budget == Budget(cost=5.0)
    assert agent.schedules == (Schedule("0 9 * * MON-FRI", "Look."),)


@pytest.mark.parametrize(
    "text",
    [
        f'{MODEL}tokens = "{SECRET}"\n',
        f'{MODEL}tokens = ["{SECRET}"]\n',
        f'{MODEL}[agent.limits]\ntokens = {{ me = "{SECRET}" }}\n',
        f'{MODEL}[agent.budget]\ntokens = "{SECRET}"\n',
        f'{MODEL}[agent.tokens]\nme = {{ token = "{SECRET}" }}\n',
        f'{MODEL}[agent.tokens]\nme = [["{SECRET}"]]\n',
        f'{MODEL}[[servers]]\nurl = "http://127.0.0.1:1"\ntoken = ["{SECRET}"]\n',
        f'{MODEL}public_url = "https://me:{SECRET}@agent.example.com"\n',
        f'{MODEL}[[servers]]\nurl = "http://me:{SECRET}@127.0.0.1:1"\n',
    ],
)
def test_a_misplaced_secret_is_not_repeated(file: Path, text: str) -> None:
    assert SECRET not in refusal(file, text)


def test_secrets_are_not_shown_with_the_settings(file: Path) -> None:
    text = f'{MODEL}[agent.tokens]\nme = "{SECRET}"\n[[servers]]\nurl = "http://127.0.0.1:1"\ntoken = "{SECRET}"\n'

    assert SECRET not in repr(settings(file, text))


def test_a_file_may_begin_with_the_mark_of_some_editors(tmp_path: Path) -> None:
    (tmp_path / "rapkit.toml").write_bytes(b'\xef\xbb\xbf[agent]\nmodel = "test"\n')

    assert load_settings(tmp_path / "rapkit.toml", environment={}).model == "test"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "latin.toml").write_bytes(b'[agent]\nmodel = "\xfc"\n')

    with pytest.raises(ConfigError, match="is not UTF-8, as TOML has to be"):
        load_settings(tmp_path / "latin.toml", environment={})
    with pytest.raises(ConfigError, match=r"cannot be read: Is a directory\. Name the file, not its folder"):
        load_settings(tmp_path, environment={})


def test_what_is_wrong_outside_of_the_file_is_named_too(file: Path) -> None:
    assert refusal(file, MODEL, RAPKIT_PUBLIC_URL="agent").startswith("RAPKIT_PUBLIC_URL: 'agent' is not a public URL")
    assert refusal(file, MODEL, Flags(public_url="agent")).startswith("--public-url: 'agent' is not a public URL")
    assert refusal(file, MODEL, Flags(store="")) == "--store is empty. Give it a value, or leave it out."
    assert refusal(file, MODEL, Flags(host="")) == "--host is empty. Give it a value, or leave it out."


def test_no_message_may_be_larger_than_the_mail_that_is_read_at_once(tmp_path: Path) -> None:
    file = tmp_path / "rapkit.toml"
    file.write_text('[agent]\nmodel = "openai:m"\n[agent.capacity]\nmail = 1_000_000\nmessage = 1_000_000\n')

    with pytest.raises(
        ConfigError, match=r"rapkit\.toml, \[agent\.capacity\]: callback is 16777216 bytes and mail 1000000"
    ):
        load_settings(file, environment={})
