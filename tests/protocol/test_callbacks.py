import json
from typing import Any

import pytest
from pydantic import ValidationError

from rapkit.errors import InvalidMessage
from rapkit.protocol import (
    Diff,
    DiffSegment,
    ImageContent,
    OAuthRequest,
    OtherSegment,
    SubscriptionEvent,
    TextContent,
    TextSegment,
    ToolResult,
    UserChoice,
    ViewUpdate,
    dump,
    parse_callback,
)

NO_URL = "not an absolute http or https URL (it has a scheme and a host, no space, control character or backslash)"


def callback(**fields: Any) -> bytes:
    return json.dumps(fields).encode()


def result(**fields: Any) -> bytes:
    return callback(type="tool_result", group_id="t1", id="c1", **fields)


def choice(**fields: Any) -> bytes:
    asked = {
        "prompt": "Sure?",
        "choices": ["Yes", "No"],
        "default": 1,
        "response_url": "https://tools.example/answer/1",
    }
    return callback(type="user_choice", group_id="t1", id="c1", **(asked | fields))


def refusal(body: bytes) -> str:
    with pytest.raises(InvalidMessage) as refused:
        parse_callback(body)
    return str(refused.value)


def test_a_result_is_read_as_sent() -> None:
    message = parse_callback(
        result(
            call_id="fc_1",
            text="done",
            content=[{"type": "text", "text": "done"}, {"type": "image", "data": "iVBO", "mediaType": "image/png"}],
            display_as=[
                {"type": "diff", "content": {"path": "a.py", "patch": "-x\n+y\n"}},
                {"type": "text", "content": "ok"},
            ],
            subscription=True,
        )
    )

    assert message == ToolResult(
        group_id="t1",
        id="c1",
        call_id="fc_1",
        text="done",
        content=(TextContent(text="done"), ImageContent(data="iVBO", mediaType="image/png")),
        display_as=(DiffSegment(content=Diff(path="a.py", patch="-x\n+y\n")), TextSegment(content="ok")),
        subscription=True,
    )


def test_an_event_is_read_as_the_seed_shows_it() -> None:
    """SUB-3"""
    message = parse_callback(
        b'{"type": "subscription_event", "group_id": "thread_xyz", "tool_call_id": "call_abc123",'
        b' "text": "build output line 1\\n[exit code: 0]", "associative": true, "final": true}'
    )

    assert message == SubscriptionEvent(
        group_id="thread_xyz",
        tool_call_id="call_abc123",
        text="build output line 1\n[exit code: 0]",
        associative=True,
        final=True,
    )


def test_oauth_choice_and_view_are_told_apart_by_their_type() -> None:
    oauth = parse_callback(callback(type="oauth", group_id="t1", id="c1", auth_url="https://id.example/authorize?x=1"))
    view = parse_callback(callback(type="view_update", group_id="t1", view_type="plan", content={"steps": [1, None]}))

    assert oauth == OAuthRequest(group_id="t1", id="c1", auth_url="https://id.example/authorize?x=1")
    assert view == ViewUpdate(group_id="t1", view_type="plan", content={"steps": [1, None]})
    assert isinstance(parse_callback(choice()), UserChoice)


def test_null_means_absent_for_every_optional_field() -> None:
    nulls = result(text="x", call_id=None, content=None, display_as=None, subscription=None)
    event = callback(
        type="subscription_event", group_id="t1", tool_call_id="c1", text="x", associative=None, final=None
    )

    assert parse_callback(nulls) == parse_callback(result(text="x"))
    assert parse_callback(event) == SubscriptionEvent(group_id="t1", tool_call_id="c1", text="x")


def test_unknown_fields_are_ignored() -> None:
    assert parse_callback(result(text="x", trace={"a": [1]}, version=2)) == parse_callback(result(text="x"))


def test_an_unknown_display_segment_is_kept_and_never_a_reason_to_refuse() -> None:
    """CB-13"""
    message = parse_callback(result(text="x", display_as=[{"type": "hologram", "content": {"w": 3}, "more": 1}]))

    assert isinstance(message, ToolResult)
    assert message.display_as == (OtherSegment(type="hologram", content={"w": 3}),)
    parse_callback(result(text="x", display_as=[{"type": ""}, {"type": "other"}]))


@pytest.mark.parametrize("answer", [{"text": ""}, {"content": []}, {"text": "", "content": []}])
def test_an_empty_answer_is_an_answer(answer: dict[str, Any]) -> None:
    assert isinstance(parse_callback(result(**answer)), ToolResult)


@pytest.mark.parametrize("answer", [{}, {"text": None}, {"content": None, "text": None}, {"display_as": []}])
def test_a_result_without_text_and_content_is_an_empty_answer(answer: dict[str, Any]) -> None:
    """CB-13: it is taken from others; one of our own could not be made."""
    assert parse_callback(result(**answer)).text == ""  # type: ignore[union-attr]
    with pytest.raises(ValidationError, match="neither text nor content"):
        ToolResult(group_id="t1", id="c1")


@pytest.mark.parametrize(
    ("data", "read"),
    [("aGVsbG8", "aGVsbG8="), ("aGVs\r\nbG8=\n", "aGVsbG8="), (" aGVsbG8= ", "aGVsbG8="), ("-_-_", "+/+/")],
)
def test_base64_is_read_however_it_is_written(data: str, read: str) -> None:
    """CB-13"""
    image = {"data": data, "mediaType": "image/png"}
    message = parse_callback(
        result(content=[{"type": "image", **image}], display_as=[{"type": "image", "content": image}])
    )

    assert isinstance(message, ToolResult)
    assert message.content is not None
    assert message.display_as is not None
    assert message.content[0].data == read  # type: ignore[union-attr]
    assert message.display_as[0].content.data == read  # type: ignore[union-attr]


def test_content_of_other_types_is_used_as_far_as_it_can_be() -> None:
    """CB-13"""
    items = [
        "a",
        {"type": "audio", "data": "x"},
        {"type": "note", "text": "b"},
        {"text": "c"},
        {"type": "text", "text": "d"},
    ]
    message = parse_callback(result(content=items))

    assert isinstance(message, ToolResult)
    shown = "(content of type audio, which cannot be shown)"
    assert [item.text for item in message.content or ()] == ["a", shown, "b", "c", "d"]  # type: ignore[union-attr]


@pytest.mark.parametrize(
    "segments",
    [
        [{"type": "diff", "content": "a patch"}],
        [{"content": "no type"}],
        ["x"],
        {"type": "text", "content": "not in a list"},
        [{"type": "image", "content": {"data": "not base64!", "mediaType": "image/png"}}],
    ],
)
def test_a_display_segment_that_cannot_be_shown_is_left_out(segments: Any) -> None:
    """CB-13: the text is still there, and the model sees nothing else."""
    assert parse_callback(result(text="x", display_as=segments)).display_as == ()  # type: ignore[union-attr]


@pytest.mark.parametrize("second", [7, "", "a\nb", "a" * 513, ["x"]])
def test_a_second_id_that_is_none_is_ignored(second: Any) -> None:
    """CB-13"""
    assert parse_callback(result(text="x", call_id=second)).call_id is None  # type: ignore[union-attr]


def test_line_breaks_in_strings_and_a_byte_order_mark_do_no_harm() -> None:
    """TRA-1"""
    body = b'\xef\xbb\xbf{"type":"tool_result","group_id":"t1","id":"c1","text":"a\nb"}'
    assert parse_callback(body).text == "a\nb"  # type: ignore[union-attr]


def test_a_missing_field_is_named_with_what_it_is() -> None:
    """CB-2, CB-7"""
    text = refusal(callback(type="subscription_event", group_id="t1", text="x"))

    assert text == "subscription_event.tool_call_id: missing; it is the id of the invocation that subscribed"


def test_every_problem_is_named() -> None:
    assert refusal(callback(type="oauth", id=1, auth_url="mailto:x")).splitlines() == [
        "oauth.group_id: missing; it is the group_id of the invocation",
        "oauth.id: a number, must be a string; it is the id of the invocation",
        f"oauth.auth_url: {NO_URL}; it is the page where the user authorises, an absolute http or https URL",
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (callback(type="tool_reslt"), "callback.type: unknown type 'tool_reslt'; "),
        (callback(type=5), "callback.type: a number, must be a string; "),
        (callback(type=None), "callback.type: null, must be a string; "),
        (callback(group_id="t1"), "callback.type: missing; "),
    ],
)
def test_without_a_known_type_the_types_are_listed(body: bytes, text: str) -> None:
    assert refusal(body) == text + "the types are tool_result, subscription_event, oauth, user_choice, view_update"


@pytest.mark.parametrize(
    "wrong",
    [
        result(text=1),
        result(text="x", subscription=1),
        result(text="x", subscription="true"),
        result(text="x", content="x"),
        result(text="x", content=[7]),
        result(content=[{"type": "image", "data": "not base64!", "mediaType": "image/png"}]),
        result(content=[{"type": "image", "data": "iVBO", "mediaType": "png"}]),
        choice(default="1"),
        choice(default=True),
        choice(default=1.0),
        choice(choices=["Yes", 2]),
    ],
)
def test_nothing_is_coerced_or_guessed(wrong: bytes) -> None:
    """CB-7"""
    refusal(wrong)


def test_problems_inside_a_list_say_where() -> None:
    text = refusal(result(content=[{"type": "text", "text": "x"}, {"type": "image", "data": "iVBO"}]))

    assert text == "tool_result.content[1].mediaType: missing"


def test_a_choice_needs_choices_and_a_default_among_them() -> None:
    """CHO-2"""
    assert refusal(choice(choices=[])) == "user_choice.choices: empty; it is the possible answers, at least one"
    assert refusal(choice(default=2)).startswith("user_choice.default: past the last choice; allowed are 0 to 1")
    assert refusal(choice(default=-1)).startswith("user_choice.default: less than 0")
    assert refusal(choice(choices=[7])) == "user_choice.choices[0]: a number, must be a string"


def test_what_is_not_a_json_object_in_utf8_is_refused() -> None:
    """TRA-1"""
    for body in (b"", b"{", b"hello", b"{'a': 1}", b'{"type": "\xff"}', b"{} {}"):
        assert refusal(body).startswith("callback: not JSON in UTF-8: ")
    assert refusal(b"[]") == "callback: an array, must be an object"
    assert refusal(b"null") == "callback: null, must be an object"


def test_what_a_field_held_is_not_repeated() -> None:
    secret = "s3cret" * 1000

    assert "s3cret" not in refusal(callback(type="oauth", group_id=[secret], id=secret, auth_url=f"ftp://{secret}"))
    assert len(refusal(callback(type=secret))) < 250


def test_of_a_repeated_key_the_last_one_counts() -> None:
    padding = ",".join(f'"k{n}":{n}' for n in range(100))
    message = parse_callback(
        f'{{"type":"oauth","text":"a",{padding},"type":"tool_result","group_id":"t1","id":"c1","text":"b"}}'.encode()
    )

    assert message == ToolResult(group_id="t1", id="c1", text="b")


def test_messages_are_written_without_what_they_do_not_have() -> None:
    """TRA-1"""
    assert dump(ToolResult(group_id="t1", id="c1", text="né")) == (
        '{"type":"tool_result","group_id":"t1","id":"c1","text":"né"}'.encode()
    )
    assert dump(SubscriptionEvent(group_id="t1", tool_call_id="c1", text="x", final=True)) == (
        b'{"type":"subscription_event","group_id":"t1","tool_call_id":"c1","text":"x","final":true}'
    )


@pytest.mark.parametrize("content", [None, [None], {"a": None}, 0, False, ""])
def test_a_view_keeps_the_nulls_it_shows(content: Any) -> None:
    """VIE-1"""
    view = ViewUpdate(group_id="t1", view_type="plan", content=content)

    assert json.loads(dump(view))["content"] == content
    assert parse_callback(dump(view)) == view


def test_a_view_without_content_is_refused() -> None:
    assert refusal(callback(type="view_update", group_id="t1", view_type="plan")).startswith(
        "view_update.content: missing"
    )


def test_messages_cannot_be_changed_or_built_wrong() -> None:
    message = ToolResult(group_id="t1", id="c1", text="x")

    with pytest.raises(ValidationError):
        message.group_id = "t2"  # type: ignore[misc]
    with pytest.raises(ValidationError):
        ToolResult(group_id="t1", id="c1", text="\ud800")
    with pytest.raises(ValidationError):
        ToolResult(group_id="t1", id="c1")
