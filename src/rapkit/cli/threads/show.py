"""`rapkit threads show`."""

import dataclasses
import time
from typing import Any

import click
from rich.text import Text

from rapkit.cli.agent_selection import AgentSelection, ReachedAgent, query_options, reach_agent
from rapkit.cli.duration_text import format_duration
from rapkit.cli.progress import PROGRESS, read_progress
from rapkit.cli.threads.journal_reader import read_journal
from rapkit.cli.threads.questions import show_authorization, show_question
from rapkit.cli.threads.terminal_writer import TerminalWriter, print_json, status_text, when_it_works
from rapkit.cli.threads.thread_lookup import find_thread, path_of, thread_argument
from rapkit.cli.threads.time_format import ago, clock, day, lasted, until
from rapkit.cli.threads.timeline import Moment, Timeline, call_text, dollars
from rapkit.cli.threads.undelivered_choice import is_undelivered, what_to_do

_INDENT = 2
_WIDE = 72
_WHO = 16
_LONGEST_TEXT = 600
_TURNS = {
    "tool": ("the tool's turn", "given up"),
    "choice": ("waits for your choice", "given up"),
    "oauth": ("waits to be authorised by you", "given up"),
    "permission": ("waits for your permission", "taken for dismissed"),
    "user": ("waits for your answer", "taken for dismissed"),
    "time": ("sleeps", "wakes"),
}


@click.command(short_help="Show a thread: what happened, and what it waits for.")
@thread_argument
@click.option(
    "--limit",
    default=50,
    show_default=True,
    metavar="NUMBER",
    type=click.IntRange(min=1),
    help="How many of the last entries to show.",
)
@click.option("--all", "everything", is_flag=True, help="Show all entries, and all of what was said.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print what the HTTP API says: {thread, family, entries}, with all entries."
)
@query_options
def show(selection: AgentSelection, thread: str, limit: int, everything: bool, as_json: bool) -> None:
    """Show a THREAD: its family, its timeline, whose turn it is, what it asks, and what it has cost.

    Times in the timeline say how long it took: a model to reply, a tool to answer, a person to choose.
    """
    with reach_agent(selection, working=False) as agent:
        found = find_thread(agent.api, thread, agent.said)
        family = agent.api.get(path_of(found["thread_id"], "family"))
        after = 0 if everything or as_json else max(0, found["length"] - limit)
        entries = list(read_journal(agent.api, found["thread_id"], after))
        page = _Page(TerminalWriter(), found, agent)
    if as_json:
        print_json({"thread": found, "family": family, "entries": entries})
        return
    page.head()
    page.family(family)
    page.timeline(entries, after, longest=None if everything else _LONGEST_TEXT)
    page.pending()
    page.questions()
    page.end()


class _Page:
    """One thread on a page, from top to bottom: what is read last, and stays on the screen, is what there is to do."""

    def __init__(self, writer: TerminalWriter, thread: Any, agent: ReachedAgent) -> None:
        self._writer = writer
        self._thread = thread
        self._said = agent.said
        self._goes_on = None if agent.works else when_it_works(agent)
        self._now = time.time()

    def head(self) -> None:
        thread = self._thread
        self._writer.whole(Text(thread["thread_id"], "bold"))
        status = status_text(thread)
        if thread["reason"]:
            status.append(f": {thread['reason']}", "")
        self._writer.line(status, indent=_INDENT, first="  ")
        made = f"made {ago(thread['created_at'], self._now)}"
        user = f", for user {thread['user_id']}" if thread["user_id"] else ""
        self._note(f"{made}{user}")
        if thread["parent_id"]:
            self._writer.whole(Text(f"  child of {thread['parent_id']}", "dim"))
        if thread["task"]:
            self._note(f"task: {_cut(thread['task'], _LONGEST_TEXT)}")
        self._note(_used(thread["budget"]))

    def family(self, family: Any) -> None:
        if not family["children"] and not family["more_children"]:
            return
        self._writer.title("Family")
        self._relative(family, "", "")

    def _relative(self, relative: Any, first: str, rest: str) -> None:
        about = status_text(relative)
        task = relative["task"] or ("for an event" if relative["for_event"] else "")
        if task:
            about.append(f"  {_cut(task, 80)}")
        line = Text(f"{first}{relative['thread_id']}")
        if line.cell_len + 2 + about.cell_len <= self._writer.width:
            self._writer.whole(line + Text("  ") + about)
        else:
            under = f"{rest}{'│' if relative['children'] else ' '}  "
            self._writer.whole(line)
            self._writer.line(about, indent=len(under), first=under)
        children = relative["children"]
        for number, child in enumerate(children):
            is_last = number == len(children) - 1 and not relative["more_children"]
            self._relative(child, rest + ("└─ " if is_last else "├─ "), rest + ("   " if is_last else "│  "))
        if relative["more_children"]:
            more = self._said.threads(f"list --parent {relative['thread_id']}")
            self._writer.whole(f"{rest}└─ and more: {more}")

    def timeline(self, entries: list[Any], after: int, *, longest: int | None) -> None:
        self._writer.title("Timeline")
        if after:
            self._note(f"{after} earlier entries are not shown: --limit {after * 2}, or --all")
        if not entries:
            self._note("nothing has happened yet")
        timeline = Timeline()
        moments = [moment for entry in entries if (moment := self._at(timeline, entry)) is not None]
        who = min(_WHO, max((len(moment.who) for moment in moments), default=0))
        last_day = ""
        for moment in moments:
            if (today := day(moment.at)) != last_day:
                last_day = today
                self._note(today)
            self._moment(moment, who, longest)

    def _at(self, timeline: Timeline, entry: Any) -> Moment | None:
        moment = timeline.moment(entry)
        if moment is None or not is_undelivered(entry) or not self._thread["pending_calls"]:
            return moment
        return dataclasses.replace(moment, text=f"{moment.text}.\n{what_to_do(moment.text, self._said)}")

    def _moment(self, moment: Moment, who: int, longest: int | None) -> None:
        text = moment.text if longest is None else _cut(moment.text, longest)
        style = "red" if moment.is_trouble else ""
        took = "" if moment.took is None else lasted(moment.took)
        speaker = _cut(moment.who, who).ljust(who)
        head = Text("  ") + Text(clock(moment.at), "dim")
        if self._writer.width >= _WIDE:
            head += Text(f"{took:>8}  ", "dim") + Text(speaker, "bold") + Text("  ")
            self._writer.line(Text(text, style), indent=head.cell_len, first=head)
            return
        head += Text(f"  {speaker.rstrip()}", "bold") + Text(f"  {took}" if took else "", "dim")
        self._writer.line(head)
        self._writer.line(Text(text, style), indent=4, first="    ")

    def pending(self) -> None:
        thread = self._thread
        if thread["pending_calls"]:
            self._writer.title("Pending")
        for call in thread["pending_calls"]:
            turn, end = _TURNS[self._awaits(call)]
            parts = [turn, f"for {format_duration(self._now - call['made_at'])}"]
            if call["until"] is not None:
                parts.append(f"{end} {until(call['until'], self._now)}")
            if call["still_running_shown"]:
                parts.append("the model goes on meanwhile")
            self._live(call, ", ".join([*self._progress(call), *parts]))
        if thread["subscriptions"]:
            self._writer.title("Subscriptions")
        for each in thread["subscriptions"]:
            self._live(
                each, ", ".join([*self._progress(each), f"active for {format_duration(self._now - each['since'])}"])
            )
        if others := [name for name in thread["views"] if name != PROGRESS]:
            self._writer.title("Views")
            self._note(", ".join(others))

    def _progress(self, call: Any) -> list[str]:
        """How far it has come, if it says so. There is one such view in a thread: what it shows may be another call's."""
        progress = read_progress(self._thread["views"].get(PROGRESS))
        return [progress.in_words] if progress is not None and progress.call_id == call["call_id"] else []

    def _awaits(self, call: Any) -> str:
        """Whose turn it is. A tool may have asked the user something."""
        for asking, awaits in (("choices", "choice"), ("oauth", "oauth")):
            if call["awaits"] == "tool" and any(each["call_id"] == call["call_id"] for each in self._thread[asking]):
                return awaits
        return str(call["awaits"])

    def _live(self, call: Any, about: str) -> None:
        self._writer.line(call_text(call), indent=_INDENT)
        self._writer.line(Text(about, "dim"), indent=4, first="    ")
        if problem := call.get("callback_problem"):
            self._writer.line(Text(problem, "red"), indent=4, first="    ")
        self._writer.whole(Text(f"    {call['call_id']}", "dim"))

    def questions(self) -> None:
        thread = self._thread
        if thread["choices"] or thread["oauth"]:
            self._writer.title("Asks you")
        for question in thread["choices"]:
            named = len(thread["choices"]) > 1
            show_question(self._writer, thread["thread_id"], question, self._said, named=named)
        for each in thread["oauth"]:
            show_authorization(self._writer, each)

    def end(self) -> None:
        """What the user has to do next, if anything."""
        thread = self._thread
        if thread["status"] == "parked":
            self._writer.title("To go on")
            if _is_used_up(thread["budget"]):
                self._note(
                    f"Grant it more: POST /v1/threads/{thread['thread_id']}/budget. See the guide of the HTTP API."
                )
            else:
                again = f'--thread {thread["thread_id"]} "…"'
                self._writer.whole(f"  {self._said.ask(again)}")
        if thread["status"] in ("running", "waiting") and self._goes_on is not None:
            self._writer.line()
            self._writer.whole(Text(f"  Nobody works on threads now. It goes on {self._goes_on}.", "dim"))

    def _note(self, text: str) -> None:
        self._writer.line(Text(text, "dim"), indent=_INDENT, first="  ")


def _used(budget: Any) -> str:
    def of(used: str, limit: float | None, shown: str) -> str:
        return used if limit is None else f"{used} of {shown}"

    slices, tokens, cost = budget["slices"], budget["tokens"], budget["cost"]
    asked = of(f"{slices['used']:,.0f}", slices["limit"], f"{slices['limit'] or 0:,.0f}")
    took = of(f"{tokens['used']:,.0f}", tokens["limit"], f"{tokens['limit'] or 0:,.0f}")
    paid = of(dollars(cost["used"]), cost["limit"], dollars(cost["limit"] or 0))
    return f"used {asked} request{'s' * (asked != '1')} to the model, {took} tokens, {paid}"


def _is_used_up(budget: Any) -> bool:
    return any(each["limit"] is not None and each["used"] >= each["limit"] for each in budget.values())


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
