"""Find the thread, and the call in it, that the user means."""

from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import click
from click.shell_completion import CompletionItem

from rapkit import call_ids
from rapkit.cli.agent_api import AgentApi, AgentRefused
from rapkit.cli.agent_selection import AgentSelection, reach_agent
from rapkit.cli.command_hints import CommandHints
from rapkit.cli.options import read_token
from rapkit.errors import ConfigError, RapkitError
from rapkit.printable import printable
from rapkit.settings.agent_location import Flags

LATEST = "latest"
_SHORTEST = 4
_PAGE = 200
_MOST_SHOWN = 5
_MOST_COMPLETED = 50
_NOT_FOUND = 404
_NOTHING_SAID = CommandHints()


def path_of(thread_id: str, *parts: str) -> str:
    """Where the API has a thread, or a part of it. Bytes that are no text are in no id: nothing is there."""
    ids = (quote(each, safe="", errors="backslashreplace") for each in (thread_id, *parts))
    return "/".join(("threads", *ids))


def all_threads(api: AgentApi, **query: Any) -> Iterator[Any]:
    """Threads as lists have them, the latest first, page by page."""
    cursor = None
    while True:
        page = api.get("threads", **{"limit": _PAGE, **query}, cursor=cursor)
        yield from page["threads"]
        cursor = page["next_cursor"]
        if cursor is None:
            return


def find_thread(api: AgentApi, given: str, said: CommandHints = _NOTHING_SAID) -> Any:
    """The thread that the user means, as it is now; `ConfigError` if that is none, or one of several."""
    if given == LATEST:
        return api.get(path_of(_latest(api, said)))
    try:
        return api.get(path_of(given))
    except AgentRefused as refusal:
        if refusal.status != _NOT_FOUND:
            raise
    found = [each["thread_id"] for each in all_threads(api)] if len(given) >= _SHORTEST else []
    found = _without_descendants(matching(given, found))
    if len(found) == 1:
        return api.get(path_of(found[0]))
    raise _not_one(f"thread {printable(given)!r}", found, f"See: {said.threads('list')}")


def matching(given: str, ids: Iterable[str]) -> list[str]:
    """Those ids that are meant: the one that is the same, or all that begin or end so."""
    ids = list(ids)
    if given in ids:
        return [given]
    if len(given) < _SHORTEST:
        return []
    return [each for each in ids if each.startswith(given) or each.endswith(given)]


def find_call(given: str, ids: Iterable[str], what: str) -> str:
    """The call of a thread, by its id or a beginning of it such as `c1`; `what` says what kind of calls these are: "pending call"."""
    ids = list(ids)
    found = call_ids.find_call(given, ids)
    if found is not None:
        return found
    others = f"There are: {', '.join(ids)}." if ids else "There is none."
    raise ConfigError(f"There is no {what} {printable(given)!r}. {others}")


def _not_one(what: str, found: list[str], otherwise: str) -> ConfigError:
    if not found:
        return ConfigError(f"There is no {what}. {otherwise}")
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return ConfigError(f"More than one could be {what}: {', '.join(found[:_MOST_SHOWN])}{more}. Say more of its id.")


def _latest(api: AgentApi, said: CommandHints) -> str:
    """The latest conversation. Child threads are part of one, and not meant."""
    for each in all_threads(api):
        if each["parent_id"] is None:
            return str(each["thread_id"])
    begin = said.ask('"…"')
    raise ConfigError(f"There is no thread yet. Begin one: {begin}, or rapkit chat.")


def _without_descendants(ids: list[str]) -> list[str]:
    """A child's id begins as its parent's does. Who gives only that means the parent."""
    return [each for each in ids if not any(each.startswith(f"{other}-") for other in ids)]


def complete_thread(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of threads for a shell; none if the agent cannot be asked."""
    said = ctx.params
    try:
        flags = Flags(store=said.get("store"), servers=said.get("servers") or ())
        selection = AgentSelection(
            said.get("config") or "rapkit.toml", said.get("url"), read_token(said.get("token")), flags
        )
        with reach_agent(selection, working=False) as agent:
            threads = agent.api.get("threads", limit=_MOST_COMPLETED)["threads"]
    except (RapkitError, OSError, LookupError, TypeError):  # a shell has no place for what is wrong
        return []
    items = [CompletionItem(LATEST, help="the latest one")]
    items += [CompletionItem(each["thread_id"], help=each["status"]) for each in threads]
    return [each for each in items if str(each.value).startswith(incomplete)]


thread_argument = click.argument("thread", metavar="THREAD", shell_complete=complete_thread)
