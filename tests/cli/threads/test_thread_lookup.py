"""How a thread is named on the command line, and what a shell offers."""

from click.testing import CliRunner

from rapkit.cli import rapkit
from tests.cli.agent_home import Home


def test_an_end_or_a_beginning_will_do(home: Home) -> None:
    thread_id = home.ask("Good morning")

    for given in (thread_id, thread_id[-6:], thread_id[:-2], "latest"):
        assert home.run("threads", "show", given).out.splitlines()[0] == thread_id


def test_a_beginning_means_the_parent_and_not_its_children(home: Home) -> None:
    parent = home.ask("have a child")
    home.wait(f"{parent}-000001", "idle")

    assert home.run("threads", "show", parent[:-1]).out.splitlines()[0] == parent
    assert home.run("threads", "show", "latest").out.splitlines()[0] == parent
    assert home.run("threads", "show", f"{parent[-5:]}-000001").out.splitlines()[0] == f"{parent}-000001"


def test_what_could_be_several_is_said_to_be(home: Home) -> None:
    threads = [home.ask("Good morning") for _ in range(2)]

    outcome = home.run("threads", "show", "thr_")

    assert outcome.code == 2
    assert outcome.err.startswith("rapkit: More than one could be thread 'thr_': ")
    assert all(each in outcome.err for each in threads)
    assert outcome.err.endswith("Say more of its id.\n")


def test_what_is_none_is_said_to_be_none(home: Home) -> None:
    thread_id = home.ask("Good morning")

    for given in ("thr_nothing", thread_id[-3:], "..", "a/b", "\x1b[31m"):
        outcome = home.run("threads", "show", given)
        assert outcome.code == 2
        assert outcome.err.startswith("rapkit: There is no thread ")
        assert outcome.err.endswith("See: rapkit threads list\n")
        assert "\x1b" not in outcome.err


def complete(words: str, **environment: str) -> list[str]:
    said = {"_RAPKIT_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split(" ")) - 1)}
    result = CliRunner().invoke(rapkit, prog_name="rapkit", env={**said, **environment})
    return [line.partition(",")[2] for line in result.output.splitlines() if line]


def test_a_shell_completes_ids(home: Home) -> None:
    thread_id = home.ask("Good morning")

    assert complete(f"rapkit threads show {thread_id[:-3]}", RAPKIT_URL=home.url) == [thread_id]
    assert "latest" in complete("rapkit threads close ", RAPKIT_URL=home.url)
    assert thread_id in complete("rapkit ask --thread ", RAPKIT_URL=home.url)


def test_a_shell_gets_nothing_from_an_agent_that_is_not_there() -> None:
    assert complete("rapkit threads show thr", RAPKIT_URL="http://127.0.0.1:9") == []
    assert complete("rapkit threads show thr", RAPKIT_CONFIG="/nowhere/rapkit.toml", RAPKIT_URL="") == []
