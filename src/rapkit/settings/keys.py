"""The list of all keys of `rapkit.toml` and all environment variables that rapkit reads.

`rapkit.settings` takes from it which keys there may be, and the reference page is made of it. All texts are for people, and may hold
Markdown code.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_TIME = 'a time: seconds, or `"90s"`, `"5m"`, `"24h"`, `"7d"`'
_SECRET = "a secret: `env:VARIABLE`, `file:path`, or the secret itself"  # noqa: S105 - says what one is
_WHETHER = "`true` or `false`"
_NUMBER = "whole number"
_COUNT = "whole number above 0"
_DOLLARS = "number above 0"
_ASKED = "`always`, `remembered` (until the user says that they need not be asked again) or `never`"


@dataclass(frozen=True, slots=True)
class Key:
    """One key of a table.

    `kind` is what its value can be and `default` what holds without it, both in words; a key with a default of `required` has to be there.
    What a `variable` of the environment says wins over the file, what a `flag` of the command line says over both. `example` is a value
    as it is written in the file.
    """

    name: str
    kind: str
    default: str
    about: str
    example: str
    variable: str | None = None
    flag: str | None = None


@dataclass(frozen=True, slots=True)
class KeyTable:
    """One table of the file. A `repeated` one is written `[[name]]`, as often as wanted.

    An `open` one has keys of the user's own choice: its one `Key` stands for all of them, and is called after what they name.
    """

    name: str
    about: str
    keys: tuple[Key, ...]
    repeated: bool = False
    open: bool = False

    @property
    def title(self) -> str:
        """How it is written in the file."""
        return f"[[{self.name}]]" if self.repeated else f"[{self.name}]"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable of the environment."""

    name: str
    about: str


REQUIRED: Final = "required"

TABLES: Final = (
    KeyTable(
        "agent",
        "What the agent is, where it is kept and where it is reached.",
        (
            Key(
                "model",
                "text: `provider:model` as pydantic-ai names it, or `scripted:` and a file",
                REQUIRED,
                "The model that is asked what to do next.",
                '"openai:gpt-5-mini"',
                variable="RAPKIT_MODEL",
                flag="--model",
            ),
            Key(
                "instructions",
                "text, or `file:path`",
                "none",
                "What the model is told about itself before every conversation.",
                '"file:instructions.md"',
            ),
            Key(
                "store",
                "text: `sqlite:///file.db`, `sqlite:////absolute/file.db` or `sqlite:///:memory:`",
                "`sqlite:///.rapkit/agent.db`",
                "Where threads are kept.",
                '"sqlite:///.rapkit/agent.db"',
                variable="RAPKIT_STORE",
                flag="--store",
            ),
            Key(
                "public_url",
                "text: a URL",
                "the address it listens on",
                "Where tool servers call back: an address of this agent that they can reach.",
                '"https://agent.example.com"',
                variable="RAPKIT_PUBLIC_URL",
                flag="--public-url",
            ),
            Key(
                "allow_plain_http",
                "`true` or `false`",
                "`false`",
                "Whether `public_url` may begin with http:// though it is not loopback. Secret URLs then travel in clear.",
                "true",
                flag="--allow-plain-http",
            ),
            Key(
                "host",
                "text: an address of this machine",
                "`127.0.0.1`",
                "The address to listen on; any but this machine's own needs `[agent.tokens]`.",
                '"127.0.0.1"',
                flag="--host",
            ),
            Key(
                "port",
                "whole number from 0 to 65535",
                "`8700`",
                "The port to listen on; 0 is any free one.",
                "8700",
                flag="--port",
            ),
            Key(
                "context_window",
                _COUNT,
                "what is known of the model, or 128,000",
                "How many tokens the model takes, if that is not known of it.",
                "128_000",
            ),
            Key(
                "call_timeout",
                f'{_TIME}, or `"off"`',
                "`off`",
                "After how long a call is given up; one that waits for a person does not run out of time.",
                '"1h"',
            ),
            Key(
                "long_running_timeout",
                f'{_TIME}, or `"off"`',
                "ten times `call_timeout`",
                "The same for tools that say of themselves that they take long.",
                '"24h"',
            ),
        ),
    ),
    KeyTable(
        "agent.tokens",
        "Who may use the client API, by name. Without any, only this machine may.",
        (
            Key(
                "NAME",
                f"{_SECRET}; or a list of them, while one replaces the other",
                "none",
                "The bearer token of one client, with 16 or more printable ASCII characters.",
                '"env:MY_TOKEN"',
                flag="--token",
            ),
        ),
        open=True,
    ),
    KeyTable(
        "agent.call_timeouts",
        "When a call is given up, tool by tool.",
        (
            Key(
                "TOOL",
                f'{_TIME}, or `"off"`',
                "`call_timeout`, or `long_running_timeout`",
                "After how long a call of this tool is given up; a tool goes by the name the model has for it.",
                '"30s"',
            ),
        ),
        open=True,
    ),
    KeyTable(
        "agent.confirm",
        "What the user is asked about before it is called.",
        (
            Key(
                "destructive",
                _ASKED,
                "`always`",
                "Whether the user is asked before tools that say of themselves that they destroy something.",
                '"always"',
            ),
        ),
    ),
    KeyTable(
        "agent.confirm.tools",
        "The same for single tools. It wins over `destructive`.",
        (
            Key(
                "TOOL",
                _ASKED,
                "`destructive` for tools that destroy something, else `never`",
                "Whether the user is asked before this tool; any tool, by the name the model has for it.",
                '"remembered"',
            ),
        ),
        open=True,
    ),
    KeyTable(
        "agent.budget",
        "What all threads together may use. Without this table there is no limit; with it, at least one of the first three is needed.",
        (
            Key("slices", _COUNT, "no limit", "How many requests to the model there may be.", "5_000"),
            Key("tokens", _COUNT, "no limit", "How many tokens may be used, in and out.", "10_000_000"),
            Key("cost", _DOLLARS, "no limit", "How many US dollars may be spent, as far as prices are known.", "5.0"),
            Key(
                "per",
                "`hour`, `day`, `month` or `total`",
                "`day`",
                "The time that the budget is for: hours, days and months are those of the UTC calendar.",
                '"day"',
            ),
        ),
    ),
    KeyTable(
        "agent.limits",
        "How far each thread may go.",
        (
            Key(
                "calls",
                _NUMBER,
                "`100`",
                "Calls without an answer at once; past it the model is told to wait, or to cancel some.",
                "100",
            ),
            Key(
                "subscriptions",
                _NUMBER,
                "`20`",
                "Subscriptions at once; past it the model is told that there may be no more.",
                "20",
            ),
            Key(
                "children",
                _NUMBER,
                "`16`",
                "Child threads at once, for events, and as many again that the model makes; past it events wait, and the model is told. "
                "0 takes events into the thread itself.",
                "16",
            ),
            Key(
                "depth", _NUMBER, "`8`", "Children of children; past it an event is taken into the thread itself.", "8"
            ),
            Key("views", _NUMBER, "`64`", "Kinds of views that a thread shows.", "64"),
            Key(
                "mistakes",
                _COUNT,
                "`5`",
                "Completions in a row whose every call was wrong; then the thread is parked.",
                "5",
            ),
            Key("attempts", _COUNT, "`6`", "Failures of the model in a row; then the thread is parked.", "6"),
            Key(
                "requests_per_message",
                _NUMBER,
                "`500`",
                "How often the model is asked after a message, an answer of the user, an event, a schedule or a wait of a minute or "
                "more; then the thread is parked until the next of these. 0 is no limit.",
                "500",
            ),
            Key(
                "slices",
                _COUNT,
                "no limit",
                "How often the model is asked in all; then the thread is parked until it is granted more.",
                "100",
            ),
            Key("tokens", _COUNT, "no limit", "The same for tokens, in and out.", "200_000"),
            Key("cost", _DOLLARS, "no limit", "The same for US dollars, as far as prices are known.", "1.5"),
            Key(
                "window",
                _COUNT,
                "`500`",
                "How many entries there may be before they are summed up; without `compaction`, how many of the last ones the model is "
                "shown, at least.",
                "500",
            ),
            Key(
                "answer_chars",
                _NUMBER,
                "`100,000`",
                "How many characters of one answer, event or message the model is shown.",
                "100_000",
            ),
            Key(
                "total_chars",
                _NUMBER,
                "`600,000`",
                "How many characters of the whole conversation the model is shown.",
                "600_000",
            ),
            Key(
                "compaction",
                _WHETHER,
                "`true`",
                "Whether what is too long ago is summed up; otherwise it is left out.",
                "true",
            ),
            Key(
                "question_timeout",
                _TIME,
                "never",
                "After how long a question that nobody answers is taken for dismissed.",
                '"7d"',
            ),
            Key(
                "cancel_on_interrupt",
                _WHETHER,
                "`false`",
                "Whether a message of the user cancels the calls it interrupts.",
                "false",
            ),
            Key(
                "cancel_on_close",
                _WHETHER,
                "`true`",
                "Whether closing a thread cancels its calls and subscriptions, each at its own server. That the thread is closed every "
                "server is told in either case. Each of these notices is sent once and can be lost.",
                "true",
            ),
            Key(
                "remember_expired",
                _TIME,
                "`4d`",
                "How long the late result of a call that was given up is still taken.",
                '"4d"',
            ),
        ),
    ),
    KeyTable(
        "agent.capacity",
        "How much the process takes on at once, and from one peer.",
        (
            Key("threads", _COUNT, "`2,048`", "Threads that run at the same time; others wait for their turn.", "2_048"),
            Key(
                "callback",
                _COUNT,
                "`16,777,216`",
                "Bytes of one message from a tool server; a larger one is answered with 413.",
                "16_777_216",
            ),
            Key(
                "message",
                _COUNT,
                "`1,048,576`",
                "Bytes of one request to the client API; a larger one is answered with 413.",
                "1_048_576",
            ),
            Key(
                "values",
                _COUNT,
                "`100,000`",
                "JSON values in one message from a tool server or a client; one with more is answered with 413 before it is parsed.",
                "100_000",
            ),
            Key(
                "mail",
                _COUNT,
                "`33,554,432`",
                "Bytes of accepted messages that are read into memory at once; the rest waits for its turn. Of the conversation that the "
                "model is shown, four times as much is read. Neither `callback` nor `message` may exceed it.",
                "33_554_432",
            ),
            Key(
                "deliveries",
                _COUNT,
                "`1,024`",
                "Messages under way to tool servers at the same time. Servers that do not answer share a quarter of them, and an eighth is "
                "kept for servers that answered lately.",
                "1_024",
            ),
            Key(
                "deliveries_per_origin",
                _COUNT,
                "`64`",
                "Messages under way to one server at the same time; 4, until it has answered one.",
                "64",
            ),
            Key(
                "lookups",
                _COUNT,
                "`256`",
                "Names looked up at the same time. Names that are slow to resolve share an eighth of them, and a quarter is kept for names "
                "that resolved before.",
                "256",
            ),
        ),
    ),
    KeyTable(
        "agent.capacity.http",
        "What the process takes from peers on the socket, before it knows who they are.",
        (
            Key(
                "connections",
                _COUNT,
                "`1,000`",
                "Connections open at once, and never more than half the file descriptors of the process. Past it the one that has waited "
                "longest for its peer is closed; if none waits, the new one is answered with 503.",
                "1_000",
            ),
            Key("header_bytes", _COUNT, "`32,768`", "Bytes of all headers of a request; more are answered with 431.", "32_768"),
            Key("header_count", _COUNT, "`100`", "Headers of a request; more are answered with 431.", "100"),
            Key("url_bytes", _COUNT, "`8,192`", "Bytes of a request's path and query; more are answered with 414.", "8_192"),
            Key(
                "pipelined",
                _COUNT,
                "`16`",
                "Requests that may be sent ahead on one connection; those past it are not answered, and the connection is closed.",
                "16",
            ),
            Key("head_seconds", _TIME, "`20s`", "How long the head of a request may take; then the connection is closed.", '"20s"'),
            Key("idle_seconds", _TIME, "`75s`", "How long a connection is kept open between two requests.", '"75s"'),
            Key(
                "body_pause_seconds",
                _TIME,
                "`30s`",
                "How long a body may make no progress; then the request is answered with 503.",
                '"30s"',
            ),
            Key(
                "body_rate",
                _COUNT,
                "`1,024`",
                "Bytes a second that a body has to come with on average; a slower one is answered with 503.",
                "1_024",
            ),
            Key(
                "write_pause_seconds",
                _TIME,
                "`60s`",
                "How long a peer may take nothing of the answer that waits for it; then the connection is closed.",
                '"60s"',
            ),
            Key(
                "discard_bytes",
                _COUNT,
                "`268,435,456`",
                "Bytes that are read of a request that was refused, so that its sender gets to see the answer.",
                "268_435_456",
            ),
            Key("discard_seconds", _TIME, "`30s`", "How long such a request is read.", '"30s"'),
        ),
    ),
    KeyTable(
        "servers",
        "The tool servers that the agent uses, a table each.",
        (
            Key(
                "url",
                "text: a URL",
                REQUIRED,
                "Where the server is. The flag and the variable add servers to those of the file.",
                '"http://127.0.0.1:8001"',
                variable="RAPKIT_SERVERS",
                flag="--server",
            ),
            Key("token", _SECRET, "none", "Shown to the server as a bearer token.", '"env:WEATHER_TOKEN"'),
            Key(
                "webhook_secret",
                f"{_SECRET}; or a list of them, while they are rotated",
                "none",
                "What the server signs its callbacks with (Standard Webhooks). With it, callbacks that are not signed are refused.",
                '"env:WEATHER_WEBHOOK_SECRET"',
            ),
            Key("prefix", "text", "none", "Comes before the names of its tools, for the model only.", '"w_"'),
            Key("name", "text", "its URL", "What threads remember the server by: give it one if the URL may change.", '"weather"'),
            Key(
                "allow_http",
                _WHETHER,
                "`false`",
                "Whether it may be plain http to another machine, as in a network you trust.",
                "true",
            ),
        ),
        repeated=True,
    ),
    KeyTable(
        "servers.sigv4",
        "Below a `[[servers]]` without a token: requests to it are signed with AWS Signature Version 4. Needs the extra `aws`.",
        (
            Key("region", "text: an AWS region", REQUIRED, "The region that the signature is for.", '"eu-central-1"'),
            Key(
                "service",
                "text",
                "`execute-api`",
                "The AWS service that the signature is for: `execute-api` is API Gateway, `lambda` is Lambda function URLs.",
                '"lambda"',
            ),
            Key(
                "access_key",
                _SECRET,
                "what botocore finds",
                "The access key id to sign with; only together with `secret_key`.",
                '"env:TOOLS_ACCESS_KEY_ID"',
            ),
            Key(
                "secret_key",
                _SECRET,
                "what botocore finds",
                "The secret access key of `access_key`.",
                '"env:TOOLS_SECRET_ACCESS_KEY"',
            ),
        ),
    ),
    KeyTable(
        "servers.client_certificate",
        "Below a `[[servers]]` with https: the client certificate that is shown to it (mutual TLS). Files are PEM.",
        (
            Key("cert", "text: a file", REQUIRED, "The certificate and its chain.", '"agent.pem"'),
            Key("key", "text: a file", "in `cert`", "Its private key, without a password.", '"agent.key"'),
            Key(
                "ca",
                "text: a file",
                "those of this machine",
                "Authorities to trust for the server's own certificate, besides those of this machine.",
                '"ca.pem"',
            ),
        ),
    ),
    KeyTable(
        "schedule",
        "Messages that come by themselves, a table each.",
        (
            Key(
                "cron",
                "text: minute, hour, day of month, month, day of week",
                REQUIRED,
                "When the message comes.",
                '"0 9 * * MON-FRI"',
            ),
            Key("message", "text", REQUIRED, "What the agent is told then.", '"How will the weather be?"'),
            Key("zone", "text: a time zone", "`UTC`", "The time zone that `cron` is meant in.", '"Europe/Berlin"'),
            Key(
                "name",
                "text",
                "made of what it says",
                "What the schedule is known by: under the same name it may be changed, and goes on in its thread.",
                '"morning"',
            ),
            Key("user_id", "text", "nobody", "Whose threads these are.", '"u1"'),
            Key(
                "new_thread",
                _WHETHER,
                "`false`",
                "Whether each message comes to a thread of its own.",
                "false",
            ),
        ),
        repeated=True,
    ),
)  # fmt: skip
"""The tables of the file, in the order to explain them in."""

VARIABLES: Final = (
    Variable("RAPKIT_CONFIG", "The file with the settings, unless `-c` names one; otherwise it is `rapkit.toml` in the current folder."),
    Variable("RAPKIT_MODEL", "`model` of `[agent]`. With it, or with `--model`, there need not be a file at all."),
    Variable("RAPKIT_SERVERS", "Tool servers besides those of the file: their URLs, with spaces between them."),
    Variable("RAPKIT_STORE", "`store` of `[agent]`."),
    Variable("RAPKIT_PUBLIC_URL", "`public_url` of `[agent]`."),
    Variable("RAPKIT_URL", "The running agent that `rapkit chat`, `rapkit ask` and `rapkit threads` talk to, unless `--url` names it."),
    Variable("RAPKIT_TOKEN", "The token they send to it, unless `--token` says: `env:VARIABLE`, `file:path` or the token itself."),
    Variable(
        "RAPKIT_SECRET_KEY",
        "The key that stores are encrypted with, 32 bytes or more as base64; or several, newest first, separated by commas. Without it, "
        "a key file beside the store is made and used.",
    ),
    Variable(
        "RAP_EMBEDDED",
        'With 1, `rapkit serve` and `tools.run()` listen on a free loopback port and print `{"port": N}` as their only output.',
    ),
    Variable("RAPKIT_TRACEBACK", "If it is set, a command that fails in a way nobody foresaw shows how that came about."),
    Variable("RAPKIT_RUN", "Set by rapkit for programs that a tool runs, so that it finds them again after a crash. Not for you to set."),
)  # fmt: skip
"""The variables that rapkit itself reads; providers of models read their own, such as `OPENAI_API_KEY`."""


def key_table(name: str) -> KeyTable:
    """The table with this name, such as `agent.limits`; `KeyError` if there is none."""
    for each in TABLES:
        if each.name == name:
            return each
    raise KeyError(name)


def key_names(name: str) -> tuple[str, ...]:
    """What may stand in a table: its keys, then the tables within it. `""` is the file."""
    own = tuple(key.name for key in key_table(name).keys) if name and not key_table(name).open else ()
    return own + tuple(_within(name))


def homes(key: str) -> list[str]:
    """The titles of the tables that a key of this name may stand in."""
    return [each.title for each in TABLES if not each.open and key in key_names(each.name)]


def _within(name: str) -> Iterator[str]:
    for each in TABLES:
        outer, _, last = each.name.rpartition(".")
        if outer == name:
            yield last
