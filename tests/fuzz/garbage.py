"""What nobody should send: values, bodies, headers and ids of all kinds."""

import json
from typing import Any

from hypothesis import strategies as st

texts = st.text(st.characters(exclude_categories=()), max_size=30)
"""Lone surrogates and NUL included."""
readable = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
ids = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
"""Those that a message may have."""
numbers = st.integers() | st.floats() | st.integers(min_value=10**300, max_value=10**400)
header_values = st.text(st.characters(min_codepoint=32, max_codepoint=255, exclude_characters="\x7f"), max_size=60)


def values_of(texts: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    """Any JSON, with these texts in it."""
    return st.recursive(
        st.none() | st.booleans() | numbers | texts,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
        max_leaves=15,
    )


@st.composite
def mutations(draw: st.DrawFn, good: bytes) -> bytes:
    """A good body with a few bytes changed, inserted, left out or doubled, or cut off."""
    body = bytearray(good)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(body)))
        match draw(st.sampled_from(("change", "insert", "leave out", "double", "cut"))):
            case "change" if at < len(body):
                body[at] = draw(st.integers(0, 255))
            case "insert":
                body[at:at] = draw(st.binary(max_size=6) | st.sampled_from((b'"', b"\\u0000", b"\\ud800", b"{", b"]")))
            case "leave out":
                del body[at : at + draw(st.integers(1, 20))]
            case "double":
                body[at:at] = body[at : at + draw(st.integers(1, 60))]
            case "cut":
                del body[at:]
    return bytes(body)


def header_mutations(good: str) -> st.SearchStrategy[str]:
    """A header's value with a few characters changed, such as it can be sent, and is not the same again once blanks are stripped."""
    sent = mutations(good.encode("latin-1")).map(lambda raw: _in_a_header(raw.decode("latin-1")))
    return sent.filter(lambda value: value != good)


def _in_a_header(value: str) -> str:
    return "".join(new_mail for new_mail in value if new_mail.isprintable() or new_mail > "\x9f").strip(" \t")


GOOD_BUT = '{"operation": "echo", "id": "i", "group_id": "g", "callback_url": "http://127.0.0.1:1/", "arguments": %s}'

ODD_BODIES = {
    "nothing": b"",
    "a byte order mark": b"\xef\xbb\xbf{}",
    "UTF-16": "{}".encode("utf-16"),
    "not UTF-8": b'{"thread_id": "\xff\xfe"}',
    "overlong UTF-8": b'{"thread_id": "\xc0\xaf"}',
    "a lone surrogate": rb'{"thread_id": "\ud800", "tool_call_id": "\udfff", "id": "\ud800"}',
    "NUL bytes": b"\x00" * 1000,
    "NUL in ids": rb'{"thread_id": "\u0000", "tool_call_id": "\u0000"}',
    "NUL in arguments": (GOOD_BUT % r'{"text": "\u0000"}').encode(),
    "a surrogate in arguments": (GOOD_BUT % r'{"text": "\ud800"}').encode(),
    "keys twice": b'{"thread_id": "a", "thread_id": 1, "tool_call_id": "b", "tool_call_id": []}',
    "arguments twice": GOOD_BUT.replace("%s", '{}, "arguments": []').encode(),
    "NaN": (GOOD_BUT % '{"numbers": [NaN, Infinity, -Infinity]}').encode(),
    "numbers beyond floats": (GOOD_BUT % '{"numbers": [1e999, -1e999, 1E400]}').encode(),
    "an endless integer": (GOOD_BUT % ('{"numbers": [%s]}' % ("9" * 200_000))).encode(),
    "an endless fraction": (GOOD_BUT % ('{"numbers": [0.%s]}' % ("1" * 200_000))).encode(),
    "an endless exponent": (GOOD_BUT % ('{"numbers": [1e%s]}' % ("9" * 100_000))).encode(),
    "open brackets": b"[" * 90_000,
    "nested arrays": b"[" * 90_000 + b"]" * 90_000,
    "nested objects": b'{"a":' * 90_000 + b"1" + b"}" * 90_000,
    "nested arguments": (GOOD_BUT % ('{"text": ' + "[" * 5_000 + "]" * 5_000 + "}")).encode(),
    "nested in reason": (GOOD_BUT % ('{"text": ' + "[" * 100 + "]" * 100 + "}")).encode(),
    "many keys": (GOOD_BUT % json.dumps({f"key {n}": n for n in range(30_000)})).encode(),
    "a long key": (GOOD_BUT % json.dumps({"k" * 500_000: 1})).encode(),
    "a long operation": GOOD_BUT.replace("echo", "e" * 500_000).replace("%s", "{}").encode(),
    "long ids": json.dumps({"thread_id": "t" * 500_000, "tool_call_id": "c" * 500_000}).encode(),
    "a path": rb'{"thread_id": "../../../../etc/passwd", "tool_call_id": "..\\..\\"}',
    "SQL": b'{"thread_id": "x\'; DROP TABLE boxes; --", "tool_call_id": "\\" OR 1=1"}',
    "comments": b'{/* no */ "thread_id": "a"}',
    "single quotes": b"{'thread_id': 'a'}",
    "a comma too many": b'{"thread_id": "a",}',
    "two documents": b'{"thread_id": "a"}{"thread_id": "b"}',
    "blanks": b" " * 900_000,
    "a form": b"thread_id=a&tool_call_id=b",
    "XML": b"<?xml version='1.0'?><!DOCTYPE a [<!ENTITY b SYSTEM 'file:///etc/passwd'>]><a>&b;</a>",
    "null": b"null",
    "a string": b'"invoke"',
    "one byte too many": b'"' + b"x" * (1024 * 1024 - 1) + b'"',
    "far too large": b"x" * (3 * 1024 * 1024),
}

HOSTILE_IDS = (
    *(
        "../../x",
        "..",
        ".",
        "/",
        "/etc/passwd",
        "a/../b",
        "..\\..\\x",
        "C:\\x",
        "\\\\host\\x",
        "~",
        "~root",
        "a/",
        "//",
    ),
    *(
        "%2e%2e%2f",
        "%00",
        "x.db",
        "gone_t_x",
        "t_" + "A" * 24,
        "-rf",
        "--",
        "*",
        "?",
        "$HOME",
        "`id`",
        "$(id)",
        "|",
        ";",
    ),
    *("x'; DROP TABLE boxes; --", '" OR 1=1', "{owner}", "{0.__class__}", "%s%n", "<script>", "a b", " ", " a", "a "),
    *("é", "e\u0301", "ﬁ", "ß", "SS", "ss", "İ", "\u202egnp", "\u2028", "\ufeff", "\U0001f4a9", "\uffff", "\U0010ffff"),
    *(
        "x" * 512,
        "ü" * 512,
        "\U0001f4a9" * 512,
        "../" * 170,
        "null",
        "None",
        "0",
        "-1",
        "NaN",
        "CON",
        "nul",
        "t1",
        "T1",
    ),
)
"""Allowed, and meant to be taken for something else."""
