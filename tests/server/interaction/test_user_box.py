import json
from typing import Any

import pytest

from rapkit.protocol import Invocation, parse_invocation
from rapkit.server.interaction.user_box import user_box, user_key
from rapkit.server.invocation import StoredCall


def message(**fields: Any) -> Invocation:
    body = {
        "operation": "x",
        "arguments": {},
        "id": "c1",
        "callback_url": "http://a.example/",
        "group_id": "t1",
        **fields,
    }
    parsed = parse_invocation(json.dumps(body).encode())
    assert isinstance(parsed, Invocation)
    return parsed


def test_a_user_is_the_same_in_every_thread_of_a_caller() -> None:
    """OAU-2"""
    first = user_key("tools", "acme", message(user_id="ann", group_id="t1"))
    second = user_key("tools", "acme", message(user_id="ann", group_id="t2", thread_ancestors=["t0"]))

    assert first == second


def test_without_a_user_the_root_thread_stands_in() -> None:
    """OAU-2"""
    root = user_key("tools", "acme", message(group_id="t1"))
    child = user_key("tools", "acme", message(group_id="t3", thread_ancestors=["t1", "t2"]))
    other = user_key("tools", "acme", message(group_id="t9"))

    assert root == child != other


@pytest.mark.parametrize(
    ("toolset", "caller", "fields"),
    [
        ("tools", "acme", {"user_id": "bob"}),
        ("tools", "evil", {"user_id": "ann"}),
        ("other", "acme", {"user_id": "ann"}),
        ("tools", "acme", {"group_id": "ann"}),
        ("tools", "acme", {"group_id": "x", "thread_ancestors": ["ann"]}),
    ],
)
def test_nobody_else_gets_the_users_things(toolset: str, caller: str, fields: dict[str, Any]) -> None:
    """OAU-2: another user, another caller's user of that name, another toolset's, a thread of that name"""
    assert user_key(toolset, caller, message(**fields)) != user_key("tools", "acme", message(user_id="ann"))


def test_a_users_box_is_found_by_their_call() -> None:
    call = StoredCall("tools", "acme", message(user_id="ann"), b"")

    assert user_box(call).id == user_key("tools", "acme", call.message)
    assert user_box(call).kind == "user/tools"
    assert "ann" not in user_box(call).id
