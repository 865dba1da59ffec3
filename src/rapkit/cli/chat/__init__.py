"""`rapkit chat`."""

import asyncio
import errno
import os
import shlex
import signal
import sys

import click

from rapkit.cli.agent_api import AgentApi
from rapkit.cli.agent_selection import AgentSelection, ReachedAgent, agent_options, reach_agent
from rapkit.cli.chat.block import Block
from rapkit.cli.chat.plain_chat import PlainChat
from rapkit.cli.chat.server_watch import say_once
from rapkit.cli.chat.session import Chat
from rapkit.cli.threads.thread_lookup import complete_thread, find_thread
from rapkit.printable import printable
from rapkit.settings.agent_location import DEFAULT_FILE
from rapkit.store_url import file_of

_OURS = "The agent ends with this chat; its threads are kept. `rapkit up` keeps it up."
_IN_MEMORY = "The agent and its threads end with this chat, as its store is in memory. One in a file keeps them."
_STOPPED = "the agent ends, its threads are kept"
_LOST = "the agent and its threads end"
_BY_SIGNAL = 128  # what shells add to its number
_MOST_THREADS = 200


@click.command()
@click.option(
    "--thread",
    metavar="ID",
    shell_complete=complete_thread,
    help='Go on with this thread: its id, an end of it, or "latest".  [default: a new one]',
)
@click.option("--last", is_flag=True, help="Go on with the latest thread that is not closed.")
@click.option("--user-id", metavar="ID", help="The user a new thread works for, which tools are told.")
@agent_options
def command(selection: AgentSelection, thread: str | None, last: bool, user_id: str | None) -> None:
    """Talk to an agent.

    Your first message begins a thread, which goes on when you leave: `--thread` comes back to it. /help shows what else can be typed.
    An agent that does not run yet runs as long as the chat does.

    \b
    rapkit chat                                   the agent of ./rapkit.toml
    rapkit chat --url http://127.0.0.1:8700       one that runs somewhere
    rapkit chat --model openai:gpt-5-mini --server http://127.0.0.1:8001

    Without a terminal each line of the input is a message. Scripts are better off with `rapkit ask`.
    """  # noqa: D301 - to click, a backspace means: leave the lines of this paragraph as they are
    if thread and last:
        raise click.UsageError("--thread and --last both say which thread.")
    with reach_agent(selection, working=True) as agent:
        if last:
            thread = _latest(agent.api)
        elif thread is not None:
            thread = str(find_thread(agent.api, thread)["thread_id"])
        if _can_be_painted_on():
            ended_by = _painted_chat(agent, selection, thread, user_id)
            if ended_by is not None:
                sys.exit(_BY_SIGNAL + ended_by)
        else:
            _plain_chat(agent, thread, user_id)


def _painted_chat(
    agent: ReachedAgent, selection: AgentSelection, thread: str | None, user_id: str | None
) -> int | None:
    """Until the user leaves, or the signal that is returned. A terminal that is gone is as good as the signal that says so."""
    try:
        return asyncio.run(_chat(agent, selection, thread, user_id))
    except EOFError:
        pass
    except OSError as error:
        if error.errno != errno.EIO:
            raise
    # Output that is no longer visible is not worth an error when the process ends.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return signal.SIGHUP


async def _chat(agent: ReachedAgent, selection: AgentSelection, thread: str | None, user_id: str | None) -> int | None:
    chat = Chat(agent.api, user_id, agent.look_at_servers)
    is_lost = agent.is_ours and _in_memory(agent.api)
    greeting = [Block(f"The agent is at {agent.api.url}. /help shows what you can do.", style="dim")]
    if agent.is_ours:
        greeting.append(Block(_IN_MEMORY if is_lost else _OURS, style="dim"))
        chat.when_left = _LOST if is_lost else _STOPPED
    await chat.run(greeting, thread)
    for text in chat.not_sent:
        click.echo(f"The agent did not confirm that it got this: {printable(text)}")
    if chat.displayed.id is not None and not chat.displayed.is_closed and not is_lost:
        click.echo(f"\nTo go on with this thread:\n  {_again(selection, chat.displayed.id)}")
    return chat.ended_by


def _in_memory(api: AgentApi) -> bool:
    return file_of(api.get("agent")["store"]) is None


def _again(selection: AgentSelection, thread_id: str) -> str:
    """The command that returns to a thread, without the secret token."""
    words = ["rapkit", "chat"]
    if selection.url:
        words += ["--url", selection.url]
    else:
        words += ["--config", selection.config] if selection.config != str(DEFAULT_FILE) else []
        words += ["--model", selection.flags.model] if selection.flags.model else []
        words += [word for server in selection.flags.servers for word in ("--server", server)]
        words += ["--store", selection.flags.store] if selection.flags.store else []
    return shlex.join([*words, "--thread", thread_id])


def _latest(api: AgentApi) -> str | None:
    """The latest thread without a parent; None if there is none, so that a new one is begun."""
    threads = api.get("threads", limit=_MOST_THREADS)["threads"]
    ours = (each["thread_id"] for each in threads if each["status"] != "closed" and each["parent_id"] is None)
    return next(ours, None)


def _plain_chat(agent: ReachedAgent, thread: str | None, user_id: str | None) -> None:
    is_terminal = sys.stdin.isatty()
    if not is_terminal:
        click.echo("Each line of the input is a message. `rapkit ask` is made for scripts.", err=True)
    else:
        click.echo(
            "Each line is a message; /quit or Ctrl-D ends. A terminal that can move its cursor shows more.", err=True
        )
    if agent.is_ours:
        click.echo(_IN_MEMORY if _in_memory(agent.api) else _OURS, err=True)
    has_prompt = is_terminal and sys.stdout.isatty()
    if has_prompt:
        say_once(agent.look_at_servers, lambda problem: click.echo(f"\n! {printable(problem)}", err=True))
    PlainChat(agent.api, user_id, prompt=has_prompt, typed=is_terminal).run(thread)


def _can_be_painted_on() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
