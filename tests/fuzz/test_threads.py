"""Threads and users with any names: what they keep is theirs, and nothing of a name becomes part of a path (CLO-7)."""

import json
import re
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from rapkit.protocol import OAuthRequest, ToolResult, UserChoice
from tests.fuzz.garbage import HOSTILE_IDS, ids, readable, texts, values_of
from tests.fuzz.hunt import few_calls_or_many, hunt
from tests.fuzz.signatures import delivery, stripe
from tests.fuzz.target import Sent, Target
from tests.fuzz.wire import visit

names = ids | st.sampled_from(HOSTILE_IDS)


def remind(target: Target, thread: str, text: str) -> Sent:
    return target.send(target.invocation(group_id=thread, operation="remind", arguments={"text": text}))


def before(target: Target, call: Sent) -> Any:
    return json.loads(target.result(call).text or "")


def check_folders(target: Target) -> None:
    """Workspaces are where they belong, and called as nobody can choose."""
    beside = {path.name for path in target.folder.iterdir()}
    workspaces = {path.name for path in (target.folder / "fuzzed.db.workspaces").iterdir()}
    assert {name.removesuffix("-wal").removesuffix("-shm") for name in beside} <= {
        *("fuzzed.db", "fuzzed.db.key", "fuzzed.db.workspaces", "server.log")
    }
    assert {name for name in workspaces if not re.fullmatch(r"(gone_)?t_[\w-]{24}(_[0-9a-f]{8})?", name)} == set()
    assert not [above for above in (target.folder, *target.folder.parents[:2]) if (above / "x").exists()]


@few_calls_or_many
def test_no_thread_finds_what_another_has_kept(target: Target, examples: int) -> None:
    """Threads are not closed here: what is kept for one is cleaned up some time after that."""
    n = 0

    def check(given: tuple[str, str]) -> None:
        nonlocal n
        one, other = given
        n += 1
        assert f"{n} for one" not in before(target, remind(target, one, f"{n} for one"))
        assert f"{n} for one" not in before(target, remind(target, other, f"{n} for other"))
        assert before(target, remind(target, one, "")) == [f"{n} for one"] * 2
        assert before(target, remind(target, other, "")) == [f"{n} for other"] * 2

    hunt(examples, st.tuples(names, names).filter(lambda two: two[0] != two[1]), check)
    check_folders(target)


def test_names_that_look_alike_are_different(target: Target) -> None:
    for _ in range(2):
        calls = {name: remind(target, name, name) for name in HOSTILE_IDS}
        found = {name: before(target, call) for name, call in calls.items()}
    assert found == {name: [name, name] for name in HOSTILE_IDS}
    check_folders(target)


def test_every_tool_works_for_threads_of_any_name(target: Target) -> None:
    """All at once, because that is how they come."""
    operations: dict[str, dict[str, Any]] = {
        "remind": {"text": "x"},
        "keep": {"key": "k", "value": [1]},
        "ask": {},
        "act": {},
        "count": {"last": 2},
        "wait_for_ever": {},
        "news": {"topic": "of all threads"},
    }
    calls: dict[str, dict[str, Sent]] = {}
    for name in (f"{id}!"[-512:] for id in HOSTILE_IDS[::4]):  # no other test's, because these threads are closed
        same = {"group_id": name, "user_id": name, "thread_ancestors": [name], "call_id": name}
        calls[name] = {
            operation: target.send(target.invocation(operation=operation, arguments=arguments, **same))
            for operation, arguments in operations.items()
        }
    for sent in calls.values():
        assert target.result(sent["news"]).subscription
    last = delivery("of all threads", text="news", final=True)
    assert target.post("/hooks/stripe", last, stripe(last)).status == 200

    for name, sent in calls.items():
        assert before(target, sent["remind"]) == [None, None]
        assert target.result(sent["keep"]).text == "[1]"
        assert answered(target, sent["ask"]) == "left"
        state = target.state(target.link(sent["act"]))
        assert visit(target.port, f"/oauth/callback?state={state}&code=x").status == 200
        assert (target.result(sent["act"]).text or "").startswith("Error: nowhere: ")
        assert target.events(sent["count"]) == ["1", "2"]
        assert target.events(sent["news"]) == ["news"]
        assert target.result(sent["wait_for_ever"]).call_id == name
        target.close(name)
    check_folders(target)


def answered(target: Target, call: Sent) -> str | None:
    """What a call says once its question was answered."""
    token = target.token(target.question(call))
    assert target.answer(token, call.id, 0).status == 200
    return target.result(call).text


def test_calls_of_any_name(target: Target) -> None:
    calls = [
        target.send(target.invocation(group_id="the same", id=name, operation="ask", arguments={}))
        for name in HOSTILE_IDS
    ]
    assert {answered(target, call) for call in calls} == {"left"}


@few_calls_or_many
def test_an_answer_is_remembered_for_that_user_alone(target: Target, examples: int) -> None:
    """A user is a user_id, or else a root thread. One cannot be taken for the other."""

    def asked(user: tuple[str, str], prompt: str) -> bool:
        kind, name = user
        fields = {kind: [name, "below"] if kind == "thread_ancestors" else name}
        arguments = {"prompt": prompt, "remember": "user"}
        call = target.send(target.invocation(operation="ask", arguments=arguments, **fields))
        return not isinstance(target.first(call), ToolResult) and answered(target, call) == "left"

    def check(given: tuple[tuple[str, str], tuple[str, str], str]) -> None:
        one, other, prompt = given
        fresh = f"{prompt} {target.invocation()['id']}"
        assert asked(one, fresh)
        assert not asked(one, fresh)
        assert asked(other, fresh) != _same(one, other)

    users = st.tuples(st.sampled_from(("user_id", "group_id", "thread_ancestors")), names)
    hunt(examples, st.tuples(users, users, readable), check)


def _same(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """A root thread is the same, whether it calls itself or a thread below it does."""
    return one[1] == other[1] and (one[0] == "user_id") == (other[0] == "user_id")


@few_calls_or_many
def test_whatever_is_kept_comes_back(target: Target, examples: int) -> None:
    def check(given: tuple[str, Any]) -> None:
        key, value = given
        text = target.result(target.invoke("keep", key=key, value=value)).text or ""
        if 0 < len(key) <= 256 and "\0" not in key:
            assert json.loads(text) == value
        else:
            assert text.startswith("Error: ")

    finite = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
    values = st.recursive(
        finite | readable, lambda inner: st.lists(inner) | st.dictionaries(readable, inner), max_leaves=8
    )
    odd = st.sampled_from(("", "\0", "a\0b", "x" * 256, "x" * 257, "ü" * 256, "\U0001f4a9" * 256, "\U0001f4a9" * 257))
    hunt(examples, st.tuples(readable | odd, values), check)


@few_calls_or_many
def test_any_arguments_of_tools_that_wait_or_go_on(target: Target, examples: int) -> None:
    """INV-10: whatever is wrong comes as a result; whatever is not, as a question, a link or a confirmation."""
    operations = st.sampled_from(("ask", "act", "remind", "keep", "count", "wait_for_ever", "news"))
    keys = st.sampled_from(
        ("prompt", "remember", "expires_in", "text", "key", "value", "last", "topic", "payload", "ctx")
    )
    fitting = st.sampled_from(("user", "thread", 0.5, -1, 1e300, 3, 10**18, "x", ""))
    changes = st.fixed_dictionaries(
        {
            "operation": operations,
            "arguments": st.dictionaries(keys | readable, fitting | values_of(readable), max_size=4),
        },
        optional={"thread_ancestors": st.lists(readable, max_size=3), "user_id": values_of(readable), "call_id": texts},
    )

    def check(changed: dict[str, Any]) -> None:
        message = target.invocation(**changed)
        status = target.post("/invoke", json.dumps(message).encode()).status
        assume(status == 200)  # half a character in it: nobody can read the ids
        call = Sent.of(message)
        first = target.first(call)
        if isinstance(first, ToolResult):
            assert first.text is not None
            assert "Traceback" not in first.text
            assert "unexpectedly" not in first.text
        else:
            assert isinstance(first, UserChoice | OAuthRequest)
        target.close(call.group_id)

    hunt(examples, changes, check)
