"""A call in one line for people, as its tool says it: kept with the call, and never shown to a model."""

from rapkit.kernel.catalog import Catalog, Loaded
from rapkit.kernel.compaction import Cut, compacted
from rapkit.kernel.completion import Reply, Usage, WantedCall
from rapkit.kernel.entries import ChoiceAsked, MadeCall, ModelSaid, Summary, load_entry
from rapkit.kernel.incoming import Undelivered
from rapkit.kernel.reply import reply
from rapkit.kernel.thread import Pending, Subscription, load_thread
from rapkit.protocol import Annotations, ToolDefinition
from tests.kernel.thread_driver import ThreadDriver, want
from tests.kernel.tools import SERVER, document, tool

SCRIPT = 'if args.city == () { "Weather anywhere" } else { "Weather in " + args.city }'


def displayed(name: str, script: str = SCRIPT, annotations: Annotations | None = None) -> ToolDefinition:
    return tool(name, annotations=annotations).model_copy(update={"displayScript": script})


CATALOG = Catalog(
    [
        Loaded(
            SERVER,
            document(
                displayed("forecast"),
                displayed("demolish", annotations=Annotations(destructive=True)),
                displayed("broken", "loop {}"),
                tool("plain"),
            ),
            "w_",
        )
    ]
)


def said_in(talk: ThreadDriver, *calls: WantedCall) -> ModelSaid:
    """What the model's reply became."""
    talk.user()
    entries = talk._apply(
        reply(talk.thread, Reply("", calls, usage=Usage()), CATALOG, talk.now, talk.limits, id_suffix="t1")
    )
    assert isinstance(entries[0], ModelSaid)
    return entries[0]


def test_a_call_is_kept_with_what_its_script_says() -> None:
    talk = ThreadDriver()

    said = said_in(talk, want("w_forecast", city="Oslo"), want("w_forecast"), want("w_broken"), want("w_plain"))

    expected = ["Weather in Oslo", "Weather anywhere", None, None]
    assert [call.display for call in said.calls] == expected
    assert [call.display for call in talk.thread.pending.values()] == expected


def test_what_is_no_call_of_a_servers_tool_has_none() -> None:
    said = said_in(
        ThreadDriver(), want("sleep", seconds=1), want("nonsense"), WantedCall("x", "w_forecast", None, "No JSON.")
    )

    assert [call.display for call in said.calls] == [None, None, None]


def test_a_subscription_keeps_it_also_when_it_is_confirmed_late() -> None:
    talk = ThreadDriver()
    said_in(talk, want("w_forecast", city="Oslo"), want("w_forecast", city="Bergen"))
    talk.result("c1_t1", subscription=True)
    talk.hears(Undelivered("c2_t1", "connection refused"))
    talk.result("c2_t1", subscription=True)

    kept = {call_id: each.display for call_id, each in talk.thread.subscriptions.items()}
    assert kept == {"c1_t1": "Weather in Oslo", "c2_t1": "Weather in Bergen"}


def test_a_person_is_asked_for_permission_with_the_arguments_and_not_with_a_strangers_words() -> None:
    talk = ThreadDriver()

    said_in(talk, want("w_demolish", city="Oslo"))

    (asked,) = [each for each in talk.journal if isinstance(each, ChoiceAsked)]
    assert asked.prompt == 'May the agent call w_demolish with {"city": "Oslo"}?'
    assert talk.thread.pending["c1_t1"].display == "Weather in Oslo"


def test_a_model_is_never_shown_it() -> None:
    talk = ThreadDriver()
    said_in(talk, want("w_forecast", city="Oslo"))
    talk.result("c1_t1", subscription=True)
    talk.event("c1_t1")

    assert "Weather in" in str(talk.journal)
    assert "Weather in" not in str(talk.conversation())

    step = compacted(talk.thread, Reply("Short."), Cut(2, 0, frozenset()), talk.now, talk.limits)
    assert isinstance(step.entries[0], Summary)
    assert "Weather in" not in str(step.entries)


def test_threads_and_journals_from_before_have_none() -> None:
    thread = load_thread(
        b'{"id":"t","pending":{"c":{"name":"x","arguments":{},"server":"","operation":"x","made_at":1}},'
        b'"subscriptions":{"d":{"name":"x","arguments":{},"since":1}}}'
    )
    entry = load_entry(b'{"kind":"assistant","calls":[{"id":"c","name":"x","arguments":{}}]}')

    assert thread.pending["c"] == Pending("x", {}, "", "x", 1.0, display=None)
    assert thread.subscriptions["d"] == Subscription("x", {}, 1.0, display=None)
    assert entry == ModelSaid(calls=(MadeCall("c", "x", {}, display=None),))
