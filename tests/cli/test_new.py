"""`rapkit new`: what it makes runs, and passes its own tests; and it never costs anybody a file."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

from rapkit import testing
from rapkit.cli.new import project as writing
from rapkit.cli.new.names import ProjectName
from rapkit.cli.new.project import write_project
from rapkit.errors import ConfigError
from tests.cli import new_tools
from tests.cli.command import Running, eventually, rapkit, running

FILES = [".gitignore", "README.md", "my_tools.py", "plan.yaml", "pyproject.toml", "rapkit.toml", "test_my_tools.py"]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project as it was made, for those who only look."""
    folder = tmp_path_factory.mktemp("new")
    outcome = rapkit("new", "my-tools", folder=folder)
    assert (outcome.code, outcome.err) == (0, "")
    (folder / "said").write_text(outcome.out)
    return folder / "my-tools"


@pytest.fixture(scope="module")
def served(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    home = tmp_path_factory.mktemp("served")
    with running("serve", str(made / "my_tools.py"), "--port", "0", folder=home) as server:
        assert server.url
        yield server


def test_it_says_what_it_made_and_what_to_do_next(made: Path) -> None:
    said = (made.parent / "said").read_text()

    assert sorted(each.name for each in made.iterdir() if each.name != "__pycache__") == FILES
    assert all(name in said for name in FILES)
    assert [line.split("  #")[0].strip() for line in said.splitlines()[-4:]] == [
        "cd my-tools",
        "rapkit serve my_tools.py",
        "rapkit chat",
        "python -m unittest",
    ]
    assert "{{" not in "".join((made / name).read_text() for name in FILES)


def run(*words: str, folder: Path) -> None:
    ended = subprocess.run([sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("words", [("pytest", "-p", "no:cacheprovider"), ("unittest",)], ids=["pytest", "unittest"])
def test_its_tests_pass(made: Path, words: tuple[str, ...]) -> None:
    run(*words, folder=made)


def test_it_is_written_as_one_writes_python(made: Path) -> None:
    checks = ("--isolated", "--no-cache")
    run("ruff", "check", *checks, "--select", "A,ASYNC,B,C4,E,F,I,N,PIE,RET,RUF,SIM,UP,W", ".", folder=made)
    run("ruff", "format", *checks, "--check", ".", folder=made)


def test_its_types_are_right(made: Path) -> None:
    """`new_tools.py` beside this file is checked with all others, by mypy in its strict mode. It is what would be made under that name."""
    checked = Path(__file__).with_name("new_tools.py").read_text()

    assert (made / "my_tools.py").read_text() == checked.replace("new_tools", "my_tools").replace(
        "new-tools", "my-tools"
    )


def test_its_tools_can_be_called(made: Path, served: Running) -> None:
    outcome = rapkit("call", served.url, "brew", "tea=green", folder=made)

    assert outcome.code == 0
    assert outcome.out.splitlines()[-1] == "A cup of green tea."
    assert outcome.err == "0/2 brewing\n1/2 brewing\n"


def test_its_agent_answers_with_the_help_of_its_tools(made: Path, served: Running, tmp_path: Path) -> None:
    settings = (made / "rapkit.toml").read_text()
    assert "http://127.0.0.1:8001" in settings
    (tmp_path / "rapkit.toml").write_text(settings.replace("http://127.0.0.1:8001", served.url))
    (tmp_path / "plan.yaml").write_bytes((made / "plan.yaml").read_bytes())
    with running("up", "--port", "0", folder=tmp_path) as up:
        eventually(lambda: "agent at http" in up.err or not up.alive)
        url = up.err.partition("agent at ")[2].split(",")[0]
        asked = {text: api(f"{url}/v1/threads", {"text": text})["thread_id"] for text in QUESTIONS}
        for text, answer in QUESTIONS.items():
            history = f"{url}/v1/threads/{asked[text]}/history"
            eventually(lambda history=history, answer=answer: answer in json.dumps(api(history)))  # type: ignore[misc]


async def test_its_agent_reminds_as_often_as_it_says(made: Path) -> None:
    async with testing.agent(model=yaml.safe_load((made / "plan.yaml").read_text()), tools=[new_tools.tools]) as agent:
        thread = await agent.thread()
        await thread.send("Remind me")
        await agent.advance(minutes=1)

        assert [said for said in await thread.said() if said] == [
            "Remind me",
            "I will remind you every five seconds, three times.",
            "It is time for cup 1.",
            "It is time for cup 2.",
            "It is time for cup 3. It is the last one.",
            "No more reminders.",
        ]


QUESTIONS = {
    "A cup of green tea, please": "Here you are: A cup of green tea.",
    "Which teas are there?": "There is: green, black",
    "Remind me": "I will remind you every five seconds",
    "Good morning": "I am only a script. Try: ",
}


def api(url: str, message: dict[str, Any] | None = None) -> Any:
    body = None if message is None else json.dumps(message).encode()
    with urlopen(Request(url, body, {"Content-Type": "application/json"})) as answer:
        return json.load(answer)


# Names


@pytest.mark.parametrize(
    ("given", "module"), [("tea", "tea"), ("my-tools", "my_tools"), ("a/b/My_Tools2/", "my_tools2"), ("./x", "x")]
)
def test_a_name_may_be_a_path_and_becomes_a_module(given: str, module: str) -> None:
    project = ProjectName.of(given)

    assert project.module == module
    assert project.folder == Path(os.path.normpath(Path.cwd() / given))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "A toolset cannot be called ''. Call it like my-tools"),
        ("2tea", "A toolset cannot be called '2tea'."),
        ("tea time", "A toolset cannot be called 'tea time'."),
        ("tea.time", "A toolset cannot be called 'tea.time'."),
        ("tea-", "A toolset cannot be called 'tea-'."),
        ("-tea", "A toolset cannot be called '-tea'."),
        ("thé", "A toolset cannot be called 'thé'."),
        ("a" * 65, "A toolset cannot have a name of 65 letters. Choose one with up to 64."),
        ("class", "A Python module cannot be called 'class'"),
        ("json", "There is a Python module 'json' already, which another of that name would hide. Choose another, like json-tools."),
        ("Click", "There is a Python module 'click' already"),
        ("rapkit", "There is a Python module 'rapkit' already"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_name(given: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ProjectName.of(given)

    assert str(refused.value).startswith(said)


# Folders


def test_a_folder_that_has_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tea").mkdir()
    (tmp_path / "tea" / "precious.txt").write_text("mine")

    outcome = rapkit("new", "tea", folder=tmp_path)

    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err == (
        "rapkit: tea is there already, and not empty: it has precious.txt. Nothing was changed; choose another name.\n"
    )
    assert [each.name for each in (tmp_path / "tea").iterdir()] == ["precious.txt"]


def test_the_current_folder_will_do_if_it_is_empty(tmp_path: Path) -> None:
    (tmp_path / "my_tea" / ".git").mkdir(parents=True)

    outcome = rapkit("new", ".", folder=tmp_path / "my_tea")

    assert outcome.code == 0
    assert "  cd " not in outcome.out
    assert (tmp_path / "my_tea" / "my_tea.py").is_file()


def test_a_file_of_that_name_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tea").write_text("mine")

    outcome = rapkit("new", "tea", folder=tmp_path)

    assert outcome.code == 2
    assert outcome.err == "rapkit: tea cannot be made: Not a directory. Nothing is left of it.\n"
    assert (tmp_path / "tea").read_text() == "mine"


@pytest.mark.parametrize(
    "problem", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=["full", "ctrl-c"]
)
def test_what_cannot_be_finished_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, problem: BaseException
) -> None:
    written = iter(range(3))

    def fill_in(_template: str, _project: ProjectName) -> str:
        if next(written, None) is None:
            raise problem
        return "text"

    monkeypatch.setattr(writing, "_filled_in", fill_in)
    monkeypatch.chdir(tmp_path)

    with pytest.raises((ConfigError, KeyboardInterrupt)) as refused:
        write_project(ProjectName.of("a/b/tea"))

    assert list(tmp_path.iterdir()) == []
    assert not isinstance(problem, OSError) or "No space left on device. Nothing is left of it." in str(refused.value)
