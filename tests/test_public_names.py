"""The names users type are a contract: this is the list."""

import subprocess
import sys

import pytest

import rapkit
from rapkit.extras import how_to_install

NAMES = [
    "Agent",
    "Budget",
    "Capacity",
    "Client",
    "ClientCertificate",
    "ClosedThread",
    "Confirmations",
    "Context",
    "Delivery",
    "Diff",
    "Durations",
    "Event",
    "HookedCall",
    "HttpLimits",
    "Image",
    "Limits",
    "OAuthProvider",
    "RapkitError",
    "Schedule",
    "Server",
    "SigV4",
    "ThreadLimits",
    "Timeouts",
    "ToolError",
    "Toolset",
]


def test_these_are_the_public_names() -> None:
    assert rapkit.__all__ == NAMES
    assert dir(rapkit) == sorted([*NAMES, "__version__"])


@pytest.mark.parametrize("name", NAMES)
def test_every_name_is_there(name: str) -> None:
    found = getattr(rapkit, name)

    assert found.__name__ == name
    assert found.__module__.startswith("rapkit.")
    assert found.__doc__


def test_no_other_name_is() -> None:
    with pytest.raises(AttributeError, match="module 'rapkit' has no attribute 'Storm'"):
        rapkit.Storm  # noqa: B018
    with pytest.raises(ImportError):
        from rapkit import Storm  # noqa: F401


def test_a_name_is_loaded_when_it_is_used() -> None:
    told = "import rapkit, sys; print('starlette' in sys.modules); rapkit.Toolset; print('starlette' in sys.modules)"
    ended = subprocess.run([sys.executable, "-c", told], capture_output=True, check=True, text=True)

    assert ended.stdout.split() == ["False", "True"]


WITHOUT_THE_EXTRA = """
import sys
sys.modules["pydantic_ai"] = sys.modules["cronsim"] = None  # importing either fails, as if it were not installed
from rapkit import Agent, RapkitError, Schedule, Server, Toolset
from rapkit.models.scripted import Scripted

Agent(model=Scripted(lambda question: "Hello."), servers=[Toolset("weather"), Server("http://127.0.0.1:1")])
for make in (lambda: Agent(model="openai:gpt-5-mini"), lambda: Schedule("0 9 * * MON", "What is new?")):
    try:
        make()
    except RapkitError as error:
        print(error)
"""


def test_without_the_extra_the_error_names_it_and_what_needs_none_works() -> None:
    ended = subprocess.run([sys.executable, "-c", WITHOUT_THE_EXTRA], capture_output=True, check=True, text=True)

    told = ended.stdout.splitlines()
    assert len(told) == 2
    assert all(line.endswith(f"Run: {how_to_install('agent')}") for line in told)
