"""One line for people about a call: what scripts can say, what they cannot, and that they can do no harm."""

import unicodedata
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rapkit.printable import printable
from rapkit.protocol.display_script import LONGEST_LINE, describe_call, render
from rapkit.protocol.json_value import MAX_DEPTH

ARGUMENTS: dict[str, Any] = {
    "number": 7,
    "city": "Oslo",
    "ratio": 0.5,
    "whole": 1.0,
    "draft": True,
    "nothing": None,
    "repo": {"owner": {"name": "ada"}, "tags": ["a", 1]},
    "huge": 10**400,
}

RENDERED = {
    # literals
    '"Weather"': "Weather",
    r'"a\tb \"c\" \\ \x41\u00e9\U0001f600 \'"': 'a b "c" \\ Aé😀 \'',
    "'x'": "x",
    r"'\u0041'": "A",
    r"'\''": "'",
    "1_000": "1000",
    "-5": "-5",
    "1.50": "1.5",
    "2e3": "2000.0",
    "true": "true",
    # arguments
    "args.city": "Oslo",
    "args . repo . owner.name": "ada",
    "args.number": "7",
    "args.repo.tags": '["a", 1]',
    "args.repo.owner": '#{"name": "ada"}',
    # putting together
    '"PR #" + args.number': "PR #7",
    'args.city + " " + args.ratio + " " + args.whole + " " + args.draft': "Oslo 0.5 1.0 true",
    '"x" + ()': "x",
    '() + "x"': "x",
    '"for " + args.missing + "all" + args.nothing': "for all",
    "'a' + 'b'": "ab",
    "\"a\" + 'b'": "ab",
    "'a' + \"b\"": "ab",
    '1 + 2 + "a" + 1 + 2': "3a12",
    '"a" + (1 + 2)': "a3",
    "1 + 0.5": "1.5",
    # comparing
    "1 + 1 == 2": "true",
    "1 == 1.0": "true",
    "1 < 2 == true": "true",
    '"b" > "a"': "true",
    "\"a\" == 'a'": "true",
    "() == ()": "true",
    "() <= ()": "false",
    "args.missing == ()": "true",
    "args.city != ()": "true",
    "args.repo.tags == ()": "false",
    'true == 1 + 0 == "1"': "false",
    '1 < "2"': "false",
    '1 != "1"': "true",
    "true > false": "true",
    "1 < 2 < 3": "false",
    # deciding
    'if args.draft { "draft" } else { "final" }': "draft",
    'if args.number < 5 { "few" } else if args.number < 10 { "some" } else { "many" }': "some",
    'if args.number < 5 { "few" } else if args.number < 6 { "some" } else { "many" }': "many",
    '"PR" + if args.draft == false { " ready" }': "PR",
    '"PR" + if args.draft { " draft" } + "!"': "PR draft!",
    '"PR" + if args.draft { " draft" } else { " final" } + "!"': "PR draft!",
    '"PR" + if false { } else { () }': "PR",
    'if args.missing == () { "none" } else { args.missing.name }': "none",
    'if true { "a" } else if args.missing.name { "b" }': "a",
    'if true { if false { 1 } else { 2 } } else { if 3 { 4 + "5" } else { 6 + () } }': "2",
    'if (args.missing == ()) == false { "named " + args.missing.name.first } else { "unnamed" }': "unnamed",
    # operators
    "2 - 1": "1",
    "2 * 3 + 1": "7",
    "-7 / 2": "-3",
    "-7 % 2": "-1",
    "1.0 / 4": "0.25",
    "-(1 + 2)": "-3",
    '!true + "a"': "falsea",
    '"b" + (true && false || true)': "btrue",
    "false && args.missing.name": "false",
    "true || args.missing.name": "true",
    'args.missing ?? "none"': "none",
    "args.city ?? args.missing.name": "Oslo",
    '"sl" in args.city': "true",
    '"owner" in args.repo': "true",
    "1 in args.repo.tags": "true",
    # looking into values
    'args["city"]': "Oslo",
    'args["repo"].owner["name"]': "ada",
    'args["missing"] == ()': "true",
    "args.repo.tags[0]": "a",
    "args.repo.tags[-1]": "1",
    "args.city[0] + args.city[-1]": "Oo",
    "args?.city": "Oslo",
    "args.missing?.name?.first == ()": "true",
    'args.missing?[0] ?? "none"': "none",
    "args.city.len()": "4",
    "args.city.len": "4",
    "len(args.repo.tags)": "2",
    "args.city.to_upper()": "OSLO",
    '"a/b/c".split("/")[1]': "b",
    '"a b".split().len()': "2",
    "\"a,b\".split(',')[-1]": "b",
    '"abcdef".sub_string(2)': "cdef",
    '"abcdef".sub_string(1, 3)': "bcd",
    '"abcdef".sub_string(-2, 9)': "ef",
    '"abc".sub_string(7)+"!"': "!",
    'args.city.contains("slo") && args.city.starts_with("Os") && args.city.ends_with("o")': "true",
    'args.city.index_of("l")': "2",
    '"".is_empty()': "true",
    'type_of(args.number) + " " + args.repo.type_of() + " " + type_of(())': "i64 map ()",
    # statements
    "let x = 1; x": "1",
    'let s = "PR"; s += " #"; s += args.number; s': "PR #7",
    'let s = args.city; if s.len() > 3 { s = s.sub_string(0, 3) + "…"; } s': "Osl…",
    'let s = "a"; if args.missing != () { s += args.missing.name; } else if args.draft { s += " draft" } s': "a draft",
    'let parts = "x/y/z".split("/"); let last = parts[parts.len() - 1]; `file ${last} of ${parts.len()}`': "file z of 3",
    "let x = 1; { let x = 2; } x": "1",
    'let x; if x == () { return "early"; } x.name': "early",
    'const c = "a"; // what it is\n /* and\n why */ c': "a",
    '{ "a" }': "a",
    '"a" // b': "a",
    '; "a"': "a",
    # interpolation
    "`PR ${args.number}`": "PR 7",
    "`plain`": "plain",
    "`a``b ${`${args.city}!`} ${if args.draft { 1 } else { 2 }}`": "a`b Oslo! 1",
    "`missing: ${args.missing}.`": "missing: .",
    # one line
    '"a\\nb\\r\\n  c\\t"': "a b c",
    '"a\\u202eb\\u0007c\\u200e"': "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}c\N{REPLACEMENT CHARACTER}",
    '"می\\u200cروم 👩\\u200d💻"': "می\N{ZERO WIDTH NON-JOINER}روم 👩\N{ZERO WIDTH JOINER}💻",
}

NOT_RENDERED = [
    # not in the subset
    "args.city.trim()",
    "let s = 1; while s < 3 { s += 1 } s",
    "for x in args.repo.tags { x }",
    "fn f() { 1 } f()",
    "args.city = 1; args.city",
    'eval("1")',
    "[1][0]",
    "let if = 1; 1",
    "x = 1; 1",
    "x += 1; 1",
    "let x = 1 x",
    "{ let x = 1; } x",
    "`a ${",
    "`a ${1",
    "`a",
    "1 / 0",
    "1 % 0",
    "9223372036854775807 * 2",
    "1e308 * 10 in 1",
    "args.city[4]",
    "args.city[-5]",
    'args.repo.tags["a"]',
    "args.repo[0]",
    "args.number[0]",
    "args.missing[0]",
    "args.missing.len()",
    '"a".split("")',
    '"a".sub_string("b")',
    '"a".nothing()',
    "len()",
    "true && 1",
    "1 || true",
    "!1",
    "/* open",
    'true && "a"',
    '"a";',
    'if true { "a"; }',
    'if true "a"',
    "loop {}",
    "print(1)",
    "city",
    "[1]",
    "#{}",
    "0x10",
    # not well formed
    "",
    "   ",
    '"a',
    "'ab'",
    "''",
    '"a" "b"',
    '"a" +',
    '+ "a"',
    "(1",
    "1)",
    "args.",
    "args.1",
    "args.'a'",
    'if true { "a" } else',
    'if true { "a"',
    'if { "a" }',
    '- "a"',
    "- -1",
    "-",
    r'"\q"',
    r'"\U00110000"',
    "1 = 1",
    "1 === 1",
    "9223372036854775808",
    # of the wrong type
    "args.city.name",
    "args.missing.name",
    "1 + ()",
    "() + ()",
    "true + 1",
    "'a' + 1",
    "args.repo + args.repo",
    "args.repo == args.repo",
    "if args.number { 1 }",
    'if args.missing { "a" } else { "b" }',
    "9223372036854775807 + 1",
    "args.huge + 1",
    "args.huge + 0.5",
    # nothing to show
    "()",
    '""',
    '" \\n "',
    "args.nothing",
    "if false { 1 }",
]


@pytest.mark.parametrize("script", RENDERED)
def test_a_script_says_a_call_in_one_line(script: str) -> None:
    assert render(script, ARGUMENTS) == RENDERED[script]


@pytest.mark.parametrize("script", NOT_RENDERED)
def test_what_is_not_understood_is_not_rendered(script: str) -> None:
    assert render(script, ARGUMENTS) is None


def test_a_line_is_clipped() -> None:
    line = render("args.text", {"text": "word " * 1000})

    assert line is not None
    assert len(line) == LONGEST_LINE
    assert line.endswith("…")


@pytest.mark.parametrize(
    "script",
    [
        "(" * 20 + '"a"' + ")" * 20,
        "(" * 1000 + '"a"' + ")" * 1000,
        "(" * 4096,
        "if true { " * 300 + "1" + " }" * 300,
        "if " * 1000,
        '"' + "a" * 5000 + '"',
        " + ".join(["args.text"] * 300),
        "let s = args.text; " + "s += s; " * 100 + "s",
        "let s = args.text;" + "s.split();" * 300 + "1",
        "!" * 1000 + "true",
        "`${" * 500 + "1" + "}`" * 500,
        "{" * 1000 + "1" + "}" * 1000,
        "a[" * 800,
    ],
    ids=[
        *("parentheses", "many parentheses", "open parentheses", "ifs", "conditions", "long", "growing"),
        *("doubling", "working", "negations", "templates", "blocks", "indices"),
    ],
)
def test_too_much_is_not_rendered(script: str) -> None:
    assert render(script, {"text": "a" * 5000}) is None


def test_some_depth_is_no_trouble() -> None:
    assert render("(" * 10 + '"a"' + ")" * 10, {}) == "a"


def test_a_long_chain_is_not_deep() -> None:
    assert render("+".join(["1"] * 1000), {}) == "1000"
    assert render("if false { 1 } else " * 150 + '{ "last" }', {}) == "last"


@pytest.mark.parametrize("depth", [MAX_DEPTH, 100_000])
def test_arguments_may_be_deep(depth: int) -> None:
    deep: Any = "x"
    for _ in range(depth):
        deep = [deep]

    assert render('"all"', {"deep": deep}) == "all"
    render('"all" + args.deep', {"deep": deep})
    assert describe_call("work", {"deep": deep}).startswith("work(deep=")


def test_in_words_a_call_is_its_name_and_its_arguments() -> None:
    arguments = {"city": "Oslo", "days": 3, "exact": None, "tags": ["a", "ø"], "text": "one\ntwo"}

    line = describe_call("forecast", arguments)

    assert line == 'forecast(city="Oslo", days=3, exact=null, tags=["a", "ø"], text="one\\ntwo")'
    assert describe_call("now", {}) == "now()"


def test_in_words_a_long_argument_does_not_hide_the_others() -> None:
    line = describe_call("write", {"text": "a" * 100_000, "path": "b.txt"})

    assert line == f'write(text="{"a" * 59}…, path="b.txt")'
    assert len(describe_call("write", {str(number): number for number in range(1000)})) == LONGEST_LINE


def test_in_words_nothing_is_hidden_by_how_it_is_written() -> None:
    assert describe_call("a\u202eb\n", {"k\x1b[2J": "\u2066"}) == 'a�b (k�[2J="�")'


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
WORDS = (
    "args args.a args.a.b . if else { } ( ) () + - == != < >= \"a\" ' \" \\ 'a' 1 0.5 1e999 99999999999999999999 "
    "true false && || ?? ! let const x = += ; , return ` ${ [ ] ?. ?[ * / % in .len() .split() .sub_string(1) \\u202e"
)
scripts = st.lists(st.sampled_from(WORDS.split()), max_size=30).map(" ".join) | st.text()


@given(scripts, st.dictionaries(st.sampled_from(["a", "b", "\n"]) | st.text(), json_values, max_size=3))
def test_whatever_is_given_a_line_or_nothing_comes_out(script: str, arguments: dict[str, Any]) -> None:
    for line in (render(script, arguments), describe_call(script, arguments)):
        if line is not None:
            assert 0 < len(line) <= LONGEST_LINE
            assert printable(line) == line
            assert len(line.splitlines()) == 1
            assert not {unicodedata.category(new_mail) for new_mail in line} & {"Cc", "Cs", "Zl", "Zp"}


expressions = st.recursive(
    st.sampled_from(["1", "0.5", '"a"', "'a'", "true", "()", "args.a", "args.a.b", "args.b"]),
    lambda inner: st.one_of(
        st.builds("({})".format, inner),
        st.builds("{} {} {}".format, inner, st.sampled_from(["+", "==", "!=", "<", "<=", ">", ">="]), inner),
        st.builds("if {} {{ {} }}".format, inner, inner),
        st.builds("if {} {{ {} }} else {{ {} }}".format, inner, inner, inner),
    ),
    max_leaves=12,
)


@given(expressions, json_values, json_values)
def test_a_branch_that_is_not_taken_is_read_and_changes_nothing(script: str, a: object, b: object) -> None:
    arguments = {"a": a, "b": b}
    assert render(f'if true {{ "taken" }} else {{ {script} }}', arguments) == "taken"
    assert render(f'if false {{ {script} }} else {{ "taken" }}', arguments) == "taken"
