"""The list of what the protocol asks for and the tests that show it are in step."""

from scripts._reference.coverage import coverage_page, mentions, obligations


def test_no_test_names_an_obligation_that_does_not_exist() -> None:
    known = {each.id for each in obligations()}

    assert sorted(each for each in mentions() if each.id not in known) == []


def test_every_obligation_is_shown_by_a_test_or_says_why_not() -> None:
    shown = {each.id for each in mentions() if each.test}

    assert [each.id for each in obligations() if each.id not in shown and not each.why_not] == []
    assert [each.id for each in obligations() if each.id in shown and each.why_not] == []


def test_every_obligation_is_said_in_a_sentence_and_known_once() -> None:
    listed = obligations()

    assert len({each.id for each in listed}) == len(listed)
    assert [each.id for each in listed if not each.say.endswith(".")] == []
    assert {each.level for each in listed} == {"MUST", "SHOULD", "MAY", "ours"}
    assert {each.who for each in listed} == {"server", "runtime", "both"}


def test_the_page_leads_to_the_tests() -> None:
    page = coverage_page()

    for each in obligations():
        assert f"### {each.id}\n" in page
    assert "../../tests/docs/test_coverage.py" not in page  # it names none
    assert [file for file in {mention.file for mention in mentions()} if f"../../{file}" not in page] == []
