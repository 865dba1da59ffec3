"""Scripts of strangers that render calls: whatever they say, they end soon, change nothing, and say one line or nothing."""

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rapkit.protocol.display_script import LONGEST_LINE, render

NAMES = st.sampled_from(["x", "y", "args"])
LEAVES = st.sampled_from(
    [
        "1",
        "-2",
        "0.5",
        '"a/b c"',
        "'a'",
        "true",
        "()",
        "x",
        "y",
        "args",
        "args.a",
        'args["b"]',
        "args.a.b",
        "`t ${x} ${args.a}`",
    ]
)
OPERATORS = st.sampled_from(["+", "-", "*", "/", "%", "==", "!=", "<", ">=", "&&", "||", "??", "in"])
METHODS = st.sampled_from(
    [".len()", ".split()", '.split("/")', ".sub_string(1)", ".sub_string(-1, 2)", ".to_upper()", ".a", "?.b"]
)


def _more(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({})".format, inner),
        st.builds("{} {} {}".format, inner, OPERATORS, inner),
        st.builds("({}){}".format, inner, METHODS),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("!({})".format, inner),
        st.builds("`<${{{}}}>`".format, inner),
        st.builds("if {} {{ {} }} else {{ {} }}".format, inner, inner, inner),
        st.builds("let {} = {}; {}".format, NAMES, inner, inner),
        st.builds("{} += {}; {}".format, NAMES, inner, inner),
        st.builds("{{ {}; {} }}".format, inner, inner),
    )


SCRIPTS = st.recursive(LEAVES, _more, max_leaves=25).map('let x = "x"; let y = 1; {}'.format)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=50),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from("ab"), inner),
    max_leaves=8,
)

quick = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(SCRIPTS, VALUES, VALUES)
def test_a_script_says_one_line_or_nothing_and_changes_no_argument(script: str, a: Any, b: Any) -> None:
    arguments = {"a": a, "b": b}
    before = copy.deepcopy(arguments)

    line = render(script, arguments)

    assert line is None or (0 < len(line) <= LONGEST_LINE and len(line.splitlines()) == 1)
    assert arguments == before
    assert render(script, arguments) == line


@quick
@given(st.text(alphabet="argsxy01.\"'`${}[]()+-*/%=!<>&|?;, \n\\letif", max_size=200), VALUES)
def test_no_text_breaks_the_reader(script: str, a: Any) -> None:
    render(script, {"a": a})


@quick
@given(SCRIPTS, st.integers(1, 3))
def test_large_arguments_are_no_way_to_keep_it_busy(script: str, megabytes: int) -> None:
    text = "a/b " * (megabytes * 250_000)

    line = render(script, {"a": text, "b": [text]})

    assert line is None or len(json.dumps(line)) < 8 * LONGEST_LINE
