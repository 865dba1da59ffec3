"""The timeline of a thread in words: who did what, and how long it took."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from rapkit.cli.progress import PROGRESS

Entry = Mapping[str, Any]

HEARD = frozenset(
    (
        "user",
        "schedule",
        "assistant",
        "result",
        "event",
        "released",
        "began",
        "task",
        "parent",
        "report",
        "unsubscribed",
    )
)
"""The kinds of entries that a model hears something of. Said here again, because the kernel's own list takes long to load."""


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry in words. `took` is how many seconds it took, as far as that can be said; `is_trouble` if a person should look."""

    seq: int
    at: float
    who: str
    text: str
    took: float | None = None
    is_trouble: bool = False


class Timeline:
    """Reads the entries of a journal in order: how long something took is known if its beginning was read."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._names: dict[str, str] = {}
        self._asked: dict[str, Entry] = {}
        self._heard_at: float | None = None

    def moment(self, entry: Entry) -> Moment | None:
        """An entry in words; None if it is of a kind we do not know, or says nothing to people."""
        tell = _KINDS.get(entry["kind"])
        if tell is None or (entry["kind"] == "view" and entry["view_type"] == PROGRESS):
            return None
        who, text = tell(self, entry)
        took = self._took(entry)
        self._remember(entry)
        trouble = entry["kind"] in _TROUBLES
        return Moment(entry["seq"], entry["at"], who, text, took, trouble)

    def _took(self, entry: Entry) -> float | None:
        if entry["kind"] == "assistant":
            begun = self._heard_at
        elif entry["kind"] == "chosen":
            begun = self._asked.get(entry["call_id"], {}).get("at")
        elif entry["kind"] == "child_closed":
            begun = self._begun.get(entry["thread_id"])
        elif entry["kind"] in ("result", "unsubscribed"):
            begun = self._begun.get(entry["call_id"])
        else:
            begun = None
        # The clock of the process that wrote the one may be ahead of the other's.
        return None if begun is None else max(0.0, entry["at"] - begun)

    def _remember(self, entry: Entry) -> None:
        match entry["kind"]:
            case "assistant":
                for call in entry["calls"]:
                    self._begun[call["id"]] = entry["at"]
                    self._names[call["id"]] = call["name"]
            case "result":
                self._begun[entry["call_id"]] = entry["at"]  # what a subscription's end is counted from
            case "choice":
                self._asked[entry["call_id"]] = entry
            case "child":
                self._begun[entry["thread_id"]] = entry["at"]
        if entry["kind"] in HEARD:
            self._heard_at = entry["at"]

    # In words

    def _name(self, entry: Entry) -> str:
        call_id: str = entry["call_id"]
        return self._names.get(call_id, call_id)

    def _assistant(self, entry: Entry) -> tuple[str, str]:
        return "model", "\n".join(filter(None, [entry["text"], *map(_call, entry["calls"])])) or "(nothing)"

    def _result(self, entry: Entry) -> tuple[str, str]:
        notes = [
            "it is a subscription now" * entry["subscription"],
            "late: the model had gone on" * entry["late"],
            "said by the runtime" * (entry["by"] == "runtime"),
        ]
        return entry["name"], _with_notes(result_text(entry), notes)

    def _event(self, entry: Entry) -> tuple[str, str]:
        fates = {"early": "kept until it is confirmed", "threaded": "for a child"}
        return entry["name"], _with_notes(
            f"event: {entry['text']}", [fates.get(entry["fate"], ""), "the last one" * entry["final"]]
        )

    def _choice(self, entry: Entry) -> tuple[str, str]:
        choices = "".join(f"\n{number}  {each}" for number, each in enumerate(entry["choices"], 1))
        return self._name(entry), f"asks: {entry['prompt']}{choices}"

    def _chosen(self, entry: Entry) -> tuple[str, str]:
        if entry["expired"]:
            return "runtime", "nobody answered in time"
        if entry.get("text") is not None:
            return "user", f"answered: {entry['text']}"
        selected = entry.get("selected")
        if entry["dismissed"] or selected is None:
            return "user", "dismissed the question"
        choices = self._asked.get(entry["call_id"], {}).get("choices", ())
        return "user", f"chose: {choices[selected] if selected < len(choices) else f'number {selected + 1}'}"

    def _unsubscribed(self, entry: Entry) -> tuple[str, str]:
        return self._name(entry), f"subscription ended: {entry['reason']}" + " (by the user)" * entry["by_user"]


def result_text(entry: Entry) -> str:
    """What a tool said. Images are named, not shown: their bytes mean nothing to a terminal."""
    if entry.get("text") is not None:
        return str(entry["text"])
    items = entry.get("content") or ()
    return "\n".join(
        item["text"] if item["type"] == "text" else f"[{item.get('mediaType', 'image')}]" for item in items
    )


def call_text(call: Entry) -> str:
    """A call in one line, as its tool says it, or else its name and arguments."""
    display: str | None = call.get("display")
    if display:
        return display
    # Here, and not above: messages as they are on the wire are loaded with it, and most commands that show threads see none.
    from rapkit.protocol.display_script import describe_call

    return describe_call(call["name"], call["arguments"])


def _call(call: Entry) -> str:
    return f"→ {call_text(call)}  {call['id']}"


def _with_notes(text: str, notes: list[str]) -> str:
    said = "; ".join(filter(None, notes))
    return f"{text} ({said})" if said else text


def _child(_: Timeline, entry: Entry) -> tuple[str, str]:
    why = f"for the event on line {entry['event']}" if entry.get("event") else f"task: {entry.get('task', '')}"
    return "runtime", f"made child {entry['thread_id']}, {why}"


def _granted(_: Timeline, entry: Entry) -> tuple[str, str]:
    amounts = [f"{entry[key]:g} {word}" for key, word in (("slices", "requests"), ("tokens", "tokens")) if entry[key]]
    return "user", f"granted {', '.join([*amounts, *([dollars(entry['cost'])] if entry['cost'] else [])])} more"


def dollars(amount: float) -> str:
    """An amount of US dollars: the smaller, the more exact."""
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


Tell = Callable[[Timeline, Entry], tuple[str, str]]
_KINDS: dict[str, Tell] = {
    "user": lambda _, entry: ("user", entry["text"]),
    "schedule": lambda _, entry: (f"schedule {entry['schedule']}", f"{entry['text']} (due {entry['due']})"),
    "assistant": Timeline._assistant,
    "result": Timeline._result,
    "event": Timeline._event,
    "released": lambda _, entry: (
        entry["name"],
        f"its early events are shown now: lines {', '.join(map(str, entry['seqs']))}",
    ),
    "unsubscribed": Timeline._unsubscribed,
    "child": _child,
    "child_closed": lambda _, entry: (
        "runtime",
        f"child {entry['thread_id']} was closed by {entry['by'] or 'somebody'}",
    ),
    "report": lambda _, entry: (
        "child",
        f"{entry['thread_id']} says: {entry['text']}" + " (its last words)" * entry["closed"],
    ),
    "began": lambda _, entry: (entry["name"], f"made for this event: {entry['text']}"),
    "task": lambda _, entry: ("parent", f"task: {entry['text']}"),
    "parent": lambda _, entry: ("parent", entry["text"]),
    "choice": Timeline._choice,
    "chosen": Timeline._chosen,
    "oauth": lambda timeline, entry: (timeline._name(entry), "asks the user to authorise it"),
    "oauth_expired": lambda timeline, entry: (timeline._name(entry), "was not authorised in time"),
    "view": lambda _, entry: ("runtime", f"view {entry['view_type']!r} has new content"),
    "summary": lambda _, entry: ("model", f"summed up everything to line {entry['upto']}: {entry['text']}"),
    "granted": _granted,
    "toolset_missing": lambda _, entry: ("problem", f"the tools of {entry['server']} are missing: {entry['reason']}"),
    "toolset_found": lambda _, entry: ("runtime", f"the tools of {entry['server']} are available now"),
    "error": lambda _, entry: ("problem", entry["text"]),
    "parked": lambda _, entry: ("runtime", f"stopped: {entry['reason']}"),
    "closed": lambda _, entry: ("runtime", f"closed by {entry['by'] or 'somebody'}"),
    "ignored": lambda _, entry: ("runtime", f"{entry['what']} was ignored: {entry['reason']}"),
}
_TROUBLES = ("error", "parked", "oauth_expired", "toolset_missing")
