"""`rapkit threads close`."""

import click

from rapkit.cli.agent_selection import AgentSelection, query_options, reach_agent
from rapkit.cli.threads.terminal_writer import say_done
from rapkit.cli.threads.thread_lookup import complete_thread, find_thread, path_of


@click.command(short_help="Close threads for good.")
@click.argument("threads", nargs=-1, required=True, metavar="THREAD...", shell_complete=complete_thread)
@query_options
def close(selection: AgentSelection, threads: tuple[str, ...]) -> None:
    """Close threads for good: they take nothing more, what is pending is cancelled, and every tool server is told.

    The servers are told once. A subscription whose server is down just then ends when it next sends something, which is refused.

    Their children go on: close them by name, if they are to end too. Closing one that is closed changes nothing.
    """
    with reach_agent(selection, working=False) as agent:
        # All are found before the first is closed: who mistypes one has closed none.
        for thread in [find_thread(agent.api, each, agent.said) for each in threads]:
            if thread["status"] == "closed":
                click.echo(f"{thread['thread_id']} was closed already.")
                continue
            agent.api.post(path_of(thread["thread_id"], "close"))
            say_done(agent, f"{thread['thread_id']} {'is' if agent.works else 'will be'} closed.")
