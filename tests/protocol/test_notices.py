from collections.abc import Callable

import pytest

from rapkit.errors import InvalidMessage
from rapkit.protocol import (
    CallCancelled,
    ChoiceMade,
    Message,
    Migrate,
    ThreadClosed,
    dump,
    parse_call_cancelled,
    parse_choice_made,
    parse_migrate,
    parse_thread_closed,
)

NOTICES: list[tuple[Callable[[bytes], Message], Message, bytes]] = [
    (parse_thread_closed, ThreadClosed(thread_id="thread_xyz"), b'{"thread_id":"thread_xyz"}'),
    (parse_call_cancelled, CallCancelled(thread_id="t1", tool_call_id="c1"), b'{"thread_id":"t1","tool_call_id":"c1"}'),
    (
        parse_migrate,
        Migrate(session_id="s1", destination_url="https://b.example/"),
        b'{"session_id":"s1","destination_url":"https://b.example/"}',
    ),
    (parse_choice_made, ChoiceMade(id="c1", selected=0), b'{"id":"c1","selected":0}'),
]


@pytest.mark.parametrize(("parse", "notice", "body"), NOTICES)
def test_a_notice_is_read_and_written_as_the_wire_has_it(
    parse: Callable[[bytes], Message], notice: Message, body: bytes
) -> None:
    assert parse(body) == notice
    assert dump(notice) == body
    assert parse(body[:-1] + b',"more":[1,2]}') == notice


@pytest.mark.parametrize(("parse", "notice", "body"), NOTICES)
def test_what_is_not_the_notice_is_refused(parse: Callable[[bytes], Message], notice: Message, body: bytes) -> None:
    """CLO-7, CAN-2"""
    for wrong in (b"", b"[]", b"{}", b"null", body[:-1], body.replace(b"id", b"xx"), b"{" + b'"a":{' * 999):
        with pytest.raises(InvalidMessage):
            parse(wrong)


def test_a_thread_id_may_look_like_a_path_but_not_hide_control_characters() -> None:
    """CLO-7: who makes file names of ids must guard them; here they are text."""
    assert parse_thread_closed(b'{"thread_id":"../../etc"}').thread_id == "../../etc"
    with pytest.raises(InvalidMessage, match=r"^thread_closed\.thread_id: has a control character; it is the group_id"):
        parse_thread_closed(b'{"thread_id":"a\\u0000b"}')


def test_a_choice_out_of_range_is_still_an_answer() -> None:
    """CHO-2: an invalid answer must become an error result, so it has to arrive."""
    assert parse_choice_made(b'{"id":"c1","selected":-1}').selected == -1
    for wrong in (b'"1"', b"true", b"null", b"1.0", b"1e3", b"9" * 400):
        with pytest.raises(InvalidMessage, match=r"^choice_made\.selected: "):
            parse_choice_made(b'{"id":"c1","selected":' + wrong + b"}")
