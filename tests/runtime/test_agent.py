"""`Agent` in a program of one's own."""

import asyncio
import logging
import socket
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.requests import Request

from rapkit import Agent, Context, Server, ThreadLimits, Toolset
from rapkit.errors import ConfigError, StoreError, ThreadClosed, ThreadError, ThreadParked, UnknownThread
from rapkit.http.http_server import listen, serve_in_background, url_of
from rapkit.kernel.completion import Question, Reply, WantedCall
from rapkit.models.errors import ModelError
from rapkit.models.scripted import Scripted
from rapkit.runtime.thread_commands import EventName
from tests.log_records import ours

MEMORY = "sqlite:///:memory:"
TOKEN = "a-token-for-clients"


def answer(question: Question) -> Reply | str:
    """Asks for the forecast if the weather is asked for, breaks if it is told to, and repeats what it hears last."""
    last = question.conversation[-1]
    texts = getattr(last, "texts", ())
    if texts and "weather" in texts[-1]:
        return Reply(text="Let me see.", calls=(WantedCall("p1", "forecast", {"city": "Oslo"}),))
    if texts and "break" in texts[-1]:
        raise ModelError("It is broken.", retryable=False)
    answers = [item.text for each in getattr(last, "answers", ()) for item in each.content]
    return f"I heard: {' '.join((*answers, *texts))}"


def make_tools(store: str = MEMORY, name: str = "weather") -> Toolset:
    tools = Toolset(name, store=store)

    @tools.tool(read_only=True)
    async def forecast(city: str) -> str:
        """Forecast."""
        return f"sunny in {city}"

    return tools


@pytest.fixture
def model() -> Scripted:
    return Scripted(answer)


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/agent.db"


async def test_it_answers_with_the_help_of_a_toolset_in_this_process(model: Scripted) -> None:
    async with Agent(model=model, servers=[make_tools()], store=MEMORY) as agent:
        thread = await agent.thread(user_id="u1")

        assert await thread.ask("How is the weather?") == "I heard: sunny in Oslo"
        assert await thread.ask("Thank you.") == "I heard: Thank you."
        assert (await thread.look()).status == "idle"
        assert (await thread.look()).thread.user_id == "u1"
        kinds = [line.entry.kind for line in await thread.history()]
        assert kinds == ["user", "assistant", "result", "assistant", "user", "assistant"]


async def test_a_server_elsewhere_may_have_a_prefix() -> None:
    def prefixed(question: Question) -> Reply | str:
        names = [tool.name for tool in question.tools]
        assert "w_forecast" in names
        assert "forecast" in names
        reply = answer(question)
        return Reply(calls=(WantedCall("p1", "w_forecast", {"city": "Rome"}),)) if isinstance(reply, Reply) else reply

    theirs = make_tools()
    with listen("127.0.0.1", 0) as listener:
        url = url_of("127.0.0.1", listener)
        async with theirs.lifespan(loopback_callbacks=True), serve_in_background(theirs.app, listener):
            servers: list[Server | Toolset] = [Server(url, prefix="w_"), make_tools(name="mine")]
            async with Agent(model=Scripted(prefixed), servers=servers, store=MEMORY) as agent:
                assert await (await agent.thread()).ask("weather?") == "I heard: sunny in Rome"


async def test_what_is_sent_is_answered_in_its_own_time(model: Scripted) -> None:
    async with Agent(model=model, store=MEMORY) as agent:
        thread = await agent.thread()
        message_id = await thread.send("Hello.")

        said = []
        async for event in thread.events():
            if event.name is EventName.ENTRY and event.line is not None:
                said.append(event.line.entry)
            if len(said) == 2:
                break
        first, second = said
        assert (first.kind, getattr(first, "id", None)) == ("user", message_id)
        assert getattr(second, "text", None) == "I heard: Hello."


async def test_events_end_when_the_thread_is_closed(model: Scripted) -> None:
    async with Agent(model=model, store=MEMORY) as agent:
        thread = await agent.thread()
        await thread.ask("Hello.")
        await thread.close()

        events = [event async for event in thread.events()]
        assert events[-1].data == {"status": "closed", "reason": None}
        assert [event async for event in thread.events(after=(await thread.look()).thread.length)]
        with pytest.raises(ThreadClosed, match="is closed, and takes nothing more"):
            await thread.ask("Are you there?")


async def test_whoever_waits_for_an_answer_learns_that_none_will_come(model: Scripted) -> None:
    async with Agent(model=model, store=MEMORY) as agent:
        thread = await agent.thread()
        with pytest.raises(ThreadParked, match=r"It is broken\."):
            await thread.ask("Please break.")
        assert (await thread.look()).status == "parked"
        assert await thread.ask("Go on.") == "I heard: Please break. Go on."


async def test_a_thread_that_is_closed_while_somebody_waits() -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def slow(_question: Question) -> Reply:
        asked.set()
        await closed.wait()
        return Reply(calls=(WantedCall("p1", "forecast", {"city": "Oslo"}),))

    async with Agent(model=Scripted(slow), servers=[make_tools()], store=MEMORY) as agent:
        thread = await agent.thread()
        waiting = asyncio.create_task(thread.ask("Hello?"))
        await asked.wait()
        await thread.close()
        closed.set()

        with pytest.raises(ThreadClosed):
            await waiting


async def test_a_thread_that_is_not_there(model: Scripted) -> None:
    async with Agent(model=model, store=MEMORY) as agent:
        with pytest.raises(UnknownThread, match="There is no thread 'thr_storm'"):
            await agent.thread("thr_storm")
        with pytest.raises(ThreadError, match="A message needs a text"):
            await (await agent.thread()).send(" ")


async def test_it_goes_on_after_a_restart_and_is_reached_where_it_was(
    model: Scripted, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CB-11: a callback URL is good across restarts, and it contains the port."""
    async with Agent(model=model, store=store) as agent:
        thread = await agent.thread()
        await thread.ask("I am Ann.")
        before = agent.engine.config.public_url
    async with Agent(model=model, store=store) as agent:
        again = await agent.thread(thread.id)
        assert await again.ask("Hello again.") == "I heard: Hello again."
        assert agent.engine.config.public_url == before
    assert ours(caplog) == []


async def test_a_call_made_before_the_restart_is_answered_after_it(store: str) -> None:
    go = asyncio.Event()
    tools = Toolset("slow", store=MEMORY)
    begun = asyncio.Event()

    @tools.tool(read_only=True)
    async def forecast(city: str, ctx: Context) -> str:
        """Take your time."""
        begun.set()
        await go.wait()
        return f"sunny in {city}, at last"

    with listen("127.0.0.1", 0) as listener:
        url = url_of("127.0.0.1", listener)
        async with tools.lifespan(loopback_callbacks=True), serve_in_background(tools.app, listener):
            async with Agent(model=Scripted(answer), servers=[url], store=store) as agent:
                thread = await agent.thread()
                await thread.send("weather?")
                await begun.wait()
            async with Agent(model=Scripted(answer), servers=[url], store=store) as agent:
                go.set()
                async with asyncio.timeout(60):  # for ever, if the tool calls back where nobody listens any more
                    async for event in (await agent.thread(thread.id)).events():
                        if event.line and getattr(event.line.entry, "text", "") == "I heard: sunny in Oslo, at last":
                            break


async def test_a_port_that_was_taken_meanwhile_is_replaced_and_that_is_said(
    model: Scripted, store: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Agent(model=model, store=store) as agent:
        port = int(agent.engine.config.public_url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", port)):
        async with Agent(model=model, store=store) as agent:
            other = int(agent.engine.config.public_url.rpartition(":")[2])
    assert other != port
    (record,) = [record for record in ours(caplog) if record.levelno >= logging.WARNING]
    assert record.getMessage().startswith(
        f"Port {port}, where the agent listened before, is taken, so it listens on {other}. Calls it made before cannot"
    )
    async with Agent(model=model, store=store) as agent:
        assert agent.engine.config.public_url.endswith(f":{other}")


async def test_a_given_port_or_url_is_not_remembered(model: Scripted, store: str) -> None:
    async with Agent(model=model, store=store) as agent:
        remembered = agent.engine.config.public_url
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with Agent(model=model, store=store, port=port) as agent:
        assert agent.engine.config.public_url == f"http://127.0.0.1:{port}"
    with socket.create_server(("127.0.0.1", int(remembered.rpartition(":")[2]))):
        url = "https://agent.example.com"
        async with Agent(model=model, store=store, public_url=url, tokens={"me": TOKEN}) as agent:
            assert agent.engine.config.public_url == url
    async with Agent(model=model, store=store) as agent:
        assert agent.engine.config.public_url == remembered


async def test_two_agents_have_nothing_to_do_with_each_other(model: Scripted, tmp_path: Path) -> None:
    stores = (f"sqlite:///{tmp_path}/{name}.db" for name in ("one", "two"))
    one, two = (Agent(model=model, servers=[make_tools()], store=store) for store in stores)
    async with one, two:
        threads = await one.thread(), await two.thread()
        assert await asyncio.gather(*(thread.ask("weather?") for thread in threads)) == ["I heard: sunny in Oslo"] * 2
        with pytest.raises(UnknownThread):
            await two.thread(threads[0].id)


async def test_two_agents_on_one_store_share_its_threads(model: Scripted, store: str) -> None:
    async with Agent(model=model, store=store) as one, Agent(model=model, store=store) as two:
        thread = await one.thread()
        assert await (await two.thread(thread.id)).ask("Hello.") == "I heard: Hello."
        assert one.engine.config.public_url != two.engine.config.public_url


async def test_mounted_in_an_app_it_needs_its_lifespan_and_a_public_url(model: Scripted, store: str) -> None:
    with listen("127.0.0.1", 0) as listener:
        url = url_of("127.0.0.1", listener)
        agent = Agent(model=model, servers=[make_tools()], store=store, public_url=f"{url}/agent")
        app = FastAPI(lifespan=agent.lifespan)

        @app.post("/weather")
        async def weather(_request: Request) -> dict[str, str]:
            return {"said": await (await agent.thread()).ask("weather?")}

        app.mount("/agent", agent.app)
        with pytest.raises(ConfigError, match=r"The agent is not running\. Use it as `async with agent:`, or give"):
            await agent.thread()
        async with app.router.lifespan_context(app), serve_in_background(app, listener):
            reader, writer = await asyncio.open_connection(*listener.getsockname())
            writer.write(b"POST /weather HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            assert b'{"said":"I heard: sunny in Oslo"}' in await reader.read()
            writer.close()


async def test_an_app_without_a_public_url_is_told_that_it_needs_one(model: Scripted) -> None:
    agent = Agent(model=model, store=MEMORY)

    with pytest.raises(ConfigError, match=r"does not know where tools reach it\. Give it a public_url"):
        async with agent.lifespan():
            pass


async def test_an_agent_others_can_reach_has_to_ask_who_they_are(model: Scripted, store: str) -> None:
    """TRA-3: behind a proxy everybody comes from this machine."""
    for url in ("https://agent.example.com", "http://10.0.0.1:8000/agent"):
        with pytest.raises(ConfigError, match="no token is configured: behind a proxy anybody could use your agent"):
            async with Agent(model=model, store=store, public_url=url):
                pass
    async with Agent(model=model, store=store, public_url="http://localhost:8000/agent"):
        pass


async def test_servers_elsewhere_that_cannot_call_back_are_named(
    model: Scripted, caplog: pytest.LogCaptureFixture
) -> None:
    servers: list[str | Server] = [
        "https://tools.invalid",
        Server("https://other.invalid", name="other"),
        "http://127.0.0.1:1",
    ]
    async with Agent(model=model, servers=servers, store=MEMORY):
        pass

    (record,) = [record for record in ours(caplog) if record.levelno >= logging.WARNING]
    assert (
        "not on this machine are: https://tools.invalid, other. Their answers will not arrive." in record.getMessage()
    )


@pytest.mark.parametrize(
    ("servers", "said"),
    [
        (["http://127.0.0.1:1", "http://127.0.0.1:1/"], "The server http://127.0.0.1:1 is named twice"),
        ([Server("http://127.0.0.1:1", name="a"), Server("http://127.0.0.1:2", name="a")], "The server a is named twice"),
        ([make_tools(), make_tools()], "The server weather is named twice"),
        (["weather"], "'weather' is not the URL of a tool server"),
    ],
)  # fmt: skip
def test_servers_that_cannot_be(model: Scripted, servers: list[str | Server | Toolset], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Agent(model=model, servers=servers)


def test_settings_that_cannot_be(model: Scripted) -> None:
    with pytest.raises(ConfigError, match=r"'agent' is not a public URL\. Write it in full"):
        Agent(model=model, public_url="agent")
    with pytest.raises(ConfigError, match="it needs 16 or more printable ASCII characters"):
        Agent(model=model, tokens={"me": "short"})


async def test_a_store_that_cannot_be_opened_leaves_nothing_behind(model: Scripted, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    agent = Agent(model=model, store=f"sqlite:///{tmp_path}/file/agent.db")
    with pytest.raises(StoreError, match="cannot be opened for writing"):
        async with agent:
            pass
    with pytest.raises(ConfigError, match="The agent is not running"):
        await agent.thread()


async def test_limits_of_threads_are_kept() -> None:
    tried = 0

    def failing(_question: Question) -> str:
        nonlocal tried
        tried += 1
        raise ModelError("It is busy.", retryable=True, retry_after=0)

    async with Agent(model=Scripted(failing), store=MEMORY, limits=ThreadLimits(attempts=2)) as agent:
        with pytest.raises(ThreadParked):
            await (await agent.thread()).ask("Hello.")
    assert tried == 2


async def test_an_agent_that_is_left_lets_those_go_who_follow_a_thread(tmp_path: Path) -> None:
    """A stream of events has no end of its own, and must not keep the agent from ending."""
    async with Agent(model=Scripted(lambda _: "yes"), store=f"sqlite:///{tmp_path}/agent.db") as agent:
        thread = await agent.thread()

        async def follow() -> None:
            async for _ in thread.events():
                following.set()

        following = asyncio.Event()
        task = asyncio.create_task(follow())
        await following.wait()

    async with asyncio.timeout(60):
        await task
