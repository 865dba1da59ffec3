"""`rapkit threads show`."""

import json
import re

import pytest

from tests.call_ids import plain
from tests.cli.agent_home import Home
from tests.cli.command import eventually

MOMENT = re.compile(r"^  \d\d:\d\d:\d\d +(?:([\d.]+ (?:s|min)) +)?(\w+) +(.*)$")


def moments(out: str) -> list[tuple[str, str]]:
    """Who said what, in the timeline of a wide terminal."""
    return [(found[2], found[3]) for line in out.splitlines() if (found := MOMENT.match(line))]


def took(out: str, who: str) -> list[str | None]:
    return [found[1] for line in out.splitlines() if (found := MOMENT.match(line)) and found[2] == who]


def section(out: str, title: str) -> list[str]:
    """The lines below a title."""
    lines = out.splitlines()
    if title not in lines:
        return []
    rest = lines[lines.index(title) + 1 :]
    return rest[: rest.index("")] if "" in rest else rest


def test_the_timeline_says_who_said_what_and_how_long_it_took(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    home.call_back(invocation, type="tool_result", text="Sunny.")
    thread_id = invocation["group_id"]
    home.wait(thread_id, "idle")

    out = home.run("threads", "show", thread_id).out

    assert out.startswith(f"{thread_id}\n  idle\n  made ")
    assert "  used 2 requests to the model, 120 tokens, $0.0012\n" in out
    assert moments(out) == [
        ("user", "weather in Oslo"),
        ("model", "Let me look."),
        ("watch", "Sunny."),
        ("model", "I asked: Sunny."),
    ]
    assert "→ Watch Oslo  c1\n" in plain(out)
    assert took(out, "user") == [None]
    assert all(took(out, "model") + took(out, "watch"))


def test_what_is_pending_says_whose_turn_it_is(home: Home) -> None:
    sent = home.run("threads", "show", home.called("weather in Oslo")["group_id"]).out
    sleeps = home.run("threads", "show", home.ask("sleep", until="waiting")).out
    asks = home.run("threads", "show", home.ask("in words", until="waiting")).out

    assert section(sent, "Pending")[0] == "  Watch Oslo"
    assert section(sent, "Pending")[1].startswith("    the tool's turn, for ")
    assert plain(section(sent, "Pending")[2]) == "    c1"
    assert re.fullmatch(
        r"    sleeps, for \d+ s, wakes in 1 d \(\d{4}-\d\d-\d\d [\d:]{8}\)", section(sleeps, "Pending")[1]
    )
    assert section(asks, "Pending")[1].startswith("    waits for your answer, for ")


def test_questions_are_shown_with_their_numbers_and_how_to_answer(home: Home) -> None:
    thread_id = home.ask("ask me", until="waiting")

    out = home.run("threads", "show", thread_id).out

    assert out.splitlines()[1] == "  asks you"
    first, *rest = section(out, "Asks you")
    assert first == "? Where to?"
    assert [line.split() for line in rest[:2]] == [["1", "Oslo"], ["2", "Rome"]]
    assert rest[-1] == f"  Answer: rapkit threads choose {thread_id} NUMBER"


def test_a_tool_may_ask_and_want_to_be_authorised_and_show_views(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]
    home.call_back(invocation, type="view_update", view_type="map", content={"x": 1})
    home.call_back(invocation, type="oauth", auth_url=f"https://example.com/authorise?state={'x' * 80}")
    eventually(lambda: bool(home.look(thread_id)["oauth"]))

    out = home.run("threads", "show", thread_id, columns=40).out

    assert "    waits to be authorised by you, for" in out
    assert f"\n  https://example.com/authorise?state={'x' * 80}\n" in out  # not broken: it is to be opened
    assert section(out, "Views") == ["  map"]


def test_a_choice_of_a_tool_says_what_stands_if_it_is_dismissed(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]
    home.call_back(
        invocation,
        type="user_choice",
        prompt="Really?",
        choices=["Yes", "No"],
        default=1,
        response_url=f"{home.tools.url}/choice",
    )
    eventually(lambda: bool(home.look(thread_id)["choices"]))

    out = home.run("threads", "show", thread_id).out

    assert "waits for your choice" in section(out, "Pending")[1]
    assert section(out, "Asks you")[2].split() == ["2", "No", "(if", "dismissed)"]
    home.run("threads", "choose", thread_id, "yes")
    eventually(lambda: not home.look(thread_id)["choices"])
    assert ("user", "chose: Yes") in moments(home.run("threads", "show", thread_id).out)


def test_subscriptions_and_their_events(home: Home) -> None:
    invocation = home.called("weather in Oslo")
    thread_id = invocation["group_id"]
    home.call_back(invocation, type="tool_result", text="Subscribed.", subscription=True)
    eventually(lambda: bool(home.look(thread_id)["subscriptions"]))
    home.call_back(invocation, type="subscription_event", text="Storm!", associative=True)
    eventually(lambda: home.look(thread_id)["length"] >= 6)

    out = home.run("threads", "show", thread_id).out

    assert section(out, "Subscriptions")[0] == "  Watch Oslo"
    assert section(out, "Subscriptions")[1].startswith("    active for ")
    assert moments(out)[2:] == [
        ("watch", "Subscribed. (it is a subscription now)"),
        ("model", "I asked: Subscribed."),
        ("watch", "event: Storm!"),
        ("model", "I heard: Storm!"),
    ]


def test_a_family_is_a_tree(home: Home) -> None:
    parent = home.ask("have a child")
    child = f"{parent}-000001"
    home.wait(child, "idle")
    eventually(lambda: home.look(parent)["length"] >= 7)

    out = home.run("threads", "show", parent).out
    below = home.run("threads", "show", child).out
    narrow = home.run("threads", "show", parent, columns=40).out

    assert section(out, "Family") == [f"{parent}  idle", f"└─ {child}  idle  Find out about rain"]
    assert f"\n  child of {parent}\n" in below
    assert "\n  task: Find out about rain\n" in below
    assert ("child", f"{child} says: It rains.") in moments(home.run("threads", "show", parent, columns=140).out)
    assert section(narrow, "Family") == [f"{parent}  idle", f"└─ {child}", "      idle  Find out about rain"]


def test_a_parked_thread_says_why_and_how_to_go_on(home: Home) -> None:
    thread_id = home.ask("break", until="parked")

    out = home.run("threads", "show", thread_id).out

    assert "  parked: The model failed: It broke. Write to the thread to try again.\n" in out
    assert section(out, "To go on") == [f'  rapkit ask --thread {thread_id} "…"']


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_it_fits_any_terminal(home: Home, columns: int) -> None:
    thread_id = home.ask("weather in " + "Llanfairpwllgwyngyll and " * 10, until="waiting")

    lines = home.run("threads", "show", thread_id, columns=columns).out.splitlines()

    assert max(map(len, lines)) <= columns
    assert any("Llanfairpwllgwyngyll" in line for line in lines)


def test_of_a_long_journal_the_end_is_shown(home: Home) -> None:
    thread_id = home.ask("first")
    for number in range(4):
        home.run("ask", "--thread", thread_id, f"message {number}")

    out = home.run("threads", "show", thread_id, "--limit", "3").out
    everything = home.run("threads", "show", thread_id, "--all").out

    assert "  7 earlier entries are not shown: --limit 14, or --all\n" in out
    assert moments(out) == [("model", "Hello."), ("user", "message 3"), ("model", "Hello.")]
    assert len(moments(everything)) == 10
    assert "not shown" not in everything


def test_long_texts_are_cut_unless_all_is_wanted(home: Home) -> None:
    thread_id = home.ask("x" * 5000)

    assert home.run("threads", "show", thread_id).out.count("x") < 1000
    assert home.run("threads", "show", thread_id, "--all").out.count("x") >= 5000


def test_json_has_everything(home: Home) -> None:
    thread_id = home.ask("Good morning")

    said = json.loads(home.run("threads", "show", thread_id, "--json", "--limit", "1").out)

    assert said["thread"] == home.look(thread_id)
    assert said["family"]["thread_id"] == thread_id
    assert [entry["kind"] for entry in said["entries"]] == ["user", "assistant"]


def test_control_codes_of_others_do_not_reach_the_terminal(home: Home) -> None:
    thread_id = home.ask("paint")

    assert "\x1b" not in home.run("threads", "show", thread_id).out
    assert "\x1b" not in home.run("threads", "show", thread_id, "--json").out
