"""`rapkit threads cancel`."""

import click

from rapkit.cli.agent_selection import AgentSelection, query_options, reach_agent
from rapkit.cli.threads.terminal_writer import say_done
from rapkit.cli.threads.thread_lookup import find_call, find_thread, path_of, thread_argument
from rapkit.cli.threads.timeline import call_text
from rapkit.errors import ConfigError


@click.command(short_help="Cancel a pending call, or a subscription.")
@thread_argument
@click.argument("call", required=False)
@query_options
def cancel(selection: AgentSelection, thread: str, call: str | None) -> None:
    """Cancel a CALL of a THREAD that is pending, or a subscription. If there is only one, it need not be named.

    The model is told, and so is the tool, which may have done something already.
    """
    with reach_agent(selection, working=False) as agent:
        found = find_thread(agent.api, thread, agent.said)
        live = {each["call_id"]: call_text(each) for each in (*found["pending_calls"], *found["subscriptions"])}
        if not live:
            raise ConfigError(f"Nothing is pending in thread {found['thread_id']}, and it has no subscriptions.")
        if call is None and len(live) > 1:
            several = "\n".join(f"  {call_id}  {text}" for call_id, text in live.items())
            raise ConfigError(f"Say which one to cancel:\n{several}")
        call_id = next(iter(live)) if call is None else find_call(call, live, "pending call or subscription")
        agent.api.post(path_of(found["thread_id"], "calls", call_id, "cancel"))
        say_done(agent, f"{live[call_id]} ({call_id}) {'is' if agent.works else 'will be'} cancelled.")
