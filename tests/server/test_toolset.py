import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from rapkit import Context, RapkitError, Toolset
from rapkit.errors import ConfigError, StoreError
from tests.server.served_toolset import invocation, serving
from tests.server.sink import Sink


async def start(tools: Toolset) -> None:
    async with tools.lifespan():
        pass


def nothing() -> None:
    """Do nothing."""


def test_a_tool_is_still_a_function(tools: Toolset) -> None:
    @tools.tool
    def bare(x: int) -> int:
        """Bare."""
        return x + 1

    @tools.tool(read_only=True, name="other")
    async def with_arguments(x: int) -> int:
        """With arguments."""
        return x

    assert bare(1) == 2
    assert set(tools.tools) == {"echo", "bare", "other"}
    assert tools.tools["other"].repeatable
    assert not tools.tools["bare"].repeatable


def test_two_tools_of_one_name_are_refused(tools: Toolset) -> None:
    """DIS-3"""
    tools.tool(nothing)

    with pytest.raises(ConfigError) as refused:
        tools.tool(nothing)
    assert str(refused.value) == "toolset 'tools' has two tools named 'nothing'. Rename one, or give it name=."


async def test_a_toolset_without_tools_is_not_served(toolset: Callable[..., Toolset]) -> None:
    """DIS-3"""
    with pytest.raises(ConfigError, match=r"toolset 'tools' cannot be served:\n.*tools"):
        await start(toolset())


@pytest.mark.parametrize("name", ["", "n" * 129, "with\0control"])
async def test_a_toolset_whose_name_cannot_be_one_is_not_served(toolset: Callable[..., Toolset], name: str) -> None:
    """DIS-3"""
    tools = toolset()
    tools.name = name
    tools.tool(nothing)

    with pytest.raises(ConfigError, match="name"):
        await start(tools)


@pytest.mark.parametrize("name", ["two words", "a/b", "a" * 129, "über", "x!"])
def test_a_tool_whose_name_cannot_be_one_is_refused(tools: Toolset, name: str) -> None:
    """DIS-3"""
    with pytest.raises(ConfigError, match=r"cannot be described to callers:\ntool\.name: "):
        tools.tool(name=name)(nothing)


async def test_the_longest_name_is_accepted(toolset: Callable[..., Toolset]) -> None:
    """DIS-3"""
    tools = toolset()
    tools.tool(name="a" * 128)(nothing)

    await start(tools)


def test_generators_are_refused(tools: Toolset) -> None:
    def generator() -> Iterator[int]:
        yield 1

    async def async_generator() -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(ConfigError, match=r"is a generator\. A tool returns one result"):
            tools.tool(function)


@pytest.mark.parametrize("timeout", [0, -1, float("inf"), float("nan")])
def test_a_timeout_that_is_none_is_refused(tools: Toolset, timeout: float) -> None:
    with pytest.raises(ConfigError, match=r"timeout is a number of seconds above 0, not "):
        tools.tool(timeout=timeout)(nothing)


def test_a_parameter_without_a_type_is_refused(tools: Toolset) -> None:
    def guess(x):  # type: ignore[no-untyped-def]
        return x

    with pytest.raises(ConfigError, match="parameter 'x' of tool 'guess' has no type"):
        tools.tool(guess)


@pytest.mark.parametrize("options", [{"allow_callbacks": ["10.0.0.0/40"]}, {"allow_callbacks": ["nonsense"]}], ids=str)
async def test_an_allowance_that_is_none_is_refused(toolset: Callable[..., Toolset], options: dict[str, Any]) -> None:
    tools = toolset(**options)
    tools.tool(nothing)

    with pytest.raises(ConfigError, match="Cannot allow"):
        await start(tools)


@pytest.mark.parametrize("store", ["mysql://x", "calls.db", "sqlite:///"])
async def test_a_store_that_is_none_is_refused(toolset: Callable[..., Toolset], store: str) -> None:
    tools = toolset(store=store)
    tools.tool(nothing)

    with pytest.raises(ConfigError, match="is no store"):
        await start(tools)


async def test_a_store_that_cannot_be_opened_is_an_error_in_our_words(toolset: Callable[..., Toolset]) -> None:
    tools = toolset(store="sqlite:////dev/null/calls.db")
    tools.tool(nothing)

    with pytest.raises(StoreError, match="cannot be opened"):
        await start(tools)


def test_the_default_store_is_named_after_the_toolset() -> None:
    assert Toolset("weather").store_url == "sqlite:///.rapkit/weather.db"


async def test_a_failure_in_the_author_s_lifespan_is_the_author_s(toolset: Callable[..., Toolset]) -> None:
    class Broken:
        async def __aenter__(self) -> None:
            raise RuntimeError("no database")

        async def __aexit__(self, *_: object) -> None: ...

    tools = toolset(lifespan=lambda _tools: Broken())
    tools.tool(nothing)

    with pytest.raises(RuntimeError, match="no database"):
        await start(tools)


def test_every_error_of_ours_is_one_family() -> None:
    assert issubclass(ConfigError, RapkitError)
    assert issubclass(StoreError, RapkitError)


def test_a_method_of_an_object_can_be_a_tool(tools: Toolset) -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def more(self, ctx: Context) -> int:
            """Count."""
            self.count += 1
            return self.count

    tools.tool(Counter().more)

    assert "more" in tools.tools


@pytest.mark.parametrize("options", [{}, {"tokens": "a" * 20}], ids=str)
async def test_a_public_url_on_another_machine_needs_tokens(
    toolset: Callable[..., Toolset], options: dict[str, Any]
) -> None:
    """A proxy on this machine would make everybody a caller on this machine."""
    tools = toolset(public_url="https://weather.example.com", **options)
    tools.tool(nothing)

    if options:
        await start(tools)
        return
    with pytest.raises(
        ConfigError, match=r"can be reached from other machines, and no credentials are configured"
    ) as refused:
        await start(tools)
    assert str(refused.value).startswith("https://weather.example.com ")


@pytest.mark.parametrize("url", ["http://127.0.0.1:8001", "http://localhost:8001", "http://[::1]:8001"])
async def test_a_public_url_on_this_machine_needs_none(toolset: Callable[..., Toolset], url: str) -> None:
    tools = toolset(public_url=url)
    tools.tool(nothing)

    await start(tools)


async def test_what_is_declared_while_the_toolset_is_served_comes_too_late(tools: Toolset) -> None:
    """DIS-9: callers were told of a version without it."""

    async def feed() -> AsyncIterator[str]:
        """Tell."""
        yield "news"

    declare: list[Callable[[Any], Any]] = [tools.tool, tools.tool(name="other"), tools.around, tools.on_thread_close]
    async with tools.lifespan():
        for each in declare:
            with pytest.raises(ConfigError, match=r" comes too late: toolset 'tools' is being served already\.$"):
                each(nothing)
        with pytest.raises(ConfigError, match=r"^The tool 'feed' comes too late"):
            tools.subscription(feed)
        assert set(tools.tools) == {"echo"}

    tools.tool(nothing)
    tools.subscription(feed)
    await start(tools)


async def test_what_the_author_s_lifespan_declares_is_part_of_what_is_served(
    toolset: Callable[..., Toolset], sink: Sink
) -> None:
    """DIS-9: the version callers are told is the one that is served."""

    @contextlib.asynccontextmanager
    async def lifespan(tools: Toolset) -> AsyncIterator[None]:
        tools.tool(name="late")(lambda: "late")
        yield

    tools = toolset(lifespan=lifespan)
    tools.tool(nothing)
    async with serving(tools) as server:
        version = (await server.get("/.well-known/rap-toolset")).json["version"]

        assert (await server.invoke(invocation(sink.url, "late", id="c1", toolset_version=version))).status == 200
        assert (await sink.result("c1")).text == "late"


@pytest.mark.parametrize(
    "script",
    [
        "",
        "'Weather in ' + args.city",
        '"Weather for " +',
        '"Weather in + args.city',
        "args.city args.days",
        '("a"',
        "`${args.a`",
    ],
)
def test_a_display_script_that_is_none_is_refused(tools: Toolset, script: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tools.tool(display=script)(nothing)
    assert str(refused.value).startswith(f"tool 'nothing': display is no Rhai expression: {script!r}. ")


@pytest.mark.parametrize(
    "script",
    [
        '"Weather in " + args.city',
        "`${args.a} and ${args.b.c}`",
        'if args.days == () { "" } else { args.days + 1 }',
        'let s = ""; for each in args.all { s += each; } s',
        '["a", "b"][args.number]',
        "args.all.map(|each| each.name)",
    ],
)
def test_a_display_script_may_be_more_of_rhai_than_we_render(tools: Toolset, script: str) -> None:
    tools.tool(display=script)(nothing)
    assert tools.tools["nothing"].definition().displayScript == script
