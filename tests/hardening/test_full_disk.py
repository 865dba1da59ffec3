"""Processes whose disk is full, or whose store is deleted while they run."""

import contextlib
import json
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.interop.conftest import Join, Serve, Up
from tests.interop.foreign_runtime import ForeignRuntime
from tests.interop.http_peer import eventually, get, post
from tests.interop.processes import OurRuntime, OurServer, Process

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="the limits of another process can be set on Linux only"
)

TOOLS = """
    from rapkit import Toolset

    tools = Toolset("tools")

    @tools.tool
    def greet() -> str:
        return "Hello."
"""

PLAN = "- say: Hello.\n"
GREETING = {"text": "Are you there?"}
LARGE = {"text": "x" * 50_000}


def readiness(process: Process) -> tuple[int, str]:
    """The status of /readyz, and the reason it gives."""
    status, body = get(f"{process.url}/readyz")
    return status, json.loads(body).get("reason", "")


def until_unready(process: Process, reason: str) -> None:
    eventually(lambda: readiness(process)[0] == 503)
    eventually(lambda: reason in readiness(process)[1])


def until_ready(process: Process) -> None:
    eventually(lambda: readiness(process) == (200, ""))


def begin(runtime: OurRuntime, message: object = GREETING) -> int:
    """The status of a new thread."""
    return post(f"{runtime.url}/v1/threads", message)[0]


def store_of(process: Process) -> Path:
    (store,) = (process.folder / ".rapkit").glob("*.db")
    return store


@contextlib.contextmanager
def no_writing(process: Process) -> Iterator[None]:
    """Let a process write nothing to a file, as if the disk were full. That goes for its log, too."""
    before = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, before)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"a file system cannot be mounted here: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "-l", str(disk)], check=True)


# Nothing can be written


def test_a_server_is_not_ready_while_nothing_can_be_written(serve: Serve, join: Join) -> None:
    server: OurServer = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url))

    with no_writing(server):
        until_unready(server, "cannot be written")
        assert post(f"{server.url}/invoke", runtime.invocation("greet"))[0] == 503

    until_ready(server)
    call = runtime.invocation("greet")
    assert post(f"{server.url}/invoke", call)[0] == 200
    assert runtime.result_of(call)["text"] == "Hello."


@pytest.mark.parametrize("worker", [True, False], ids=["worker", "no worker"])
def test_an_agent_is_not_ready_while_nothing_can_be_written(up: Up, worker: bool) -> None:
    agent: OurRuntime = up(PLAN, [], options=[] if worker else ["--no-worker"])

    with no_writing(agent):
        until_unready(agent, "cannot be written")
        assert begin(agent) == 503

    until_ready(agent)
    assert begin(agent) == 201


def test_an_agent_goes_on_when_a_small_disk_has_room_again(up: Up, small_disk: Path) -> None:
    """And nothing that it has acknowledged is lost."""
    agent: OurRuntime = up(PLAN, [], {"store": f"sqlite:///{small_disk}/agent.db"})
    first = agent.thread("Hello?")
    agent.until(first, "Hello.")

    ballast = small_disk / "ballast"
    with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(b"x" * 4096)
    until_unready(agent, "full")
    assert "is full" in agent.log()
    acknowledged = [
        json.loads(body)["thread_id"]
        for status, body in (post(f"{agent.url}/v1/threads", LARGE) for _ in range(20))
        if status == 201
    ]
    ballast.unlink()

    until_ready(agent)
    later = agent.thread("And now?")
    for thread in (first, *acknowledged, later):
        agent.until(thread, "Hello.")
    assert "the store can be written again" in agent.log()


# The store is deleted


def delete_folder(store: Path) -> None:
    shutil.rmtree(store.parent)


def delete_database(store: Path) -> None:
    store.unlink()


def delete_log(store: Path) -> None:
    store.with_name(f"{store.name}-wal").unlink()


each_loss = pytest.mark.parametrize("lose", [delete_folder, delete_database, delete_log])


@each_loss
def test_a_server_acknowledges_nothing_into_a_deleted_store(
    serve: Serve, join: Join, lose: Callable[[Path], None]
) -> None:
    server: OurServer = serve(TOOLS)
    runtime = join(ForeignRuntime(server.url))

    lose(store_of(server))

    assert post(f"{server.url}/invoke", runtime.invocation("greet"))[0] == 503  # at once, not when it is noticed
    until_unready(server, "Restart the process")
    assert "deleted, moved or replaced" in server.log()


@each_loss
def test_an_agent_acknowledges_nothing_into_a_deleted_store(up: Up, lose: Callable[[Path], None]) -> None:
    agent: OurRuntime = up(PLAN, [])

    lose(store_of(agent))

    assert begin(agent) == 503
    until_unready(agent, "Restart the process")
    assert "deleted, moved or replaced" in agent.log()
    agent.stop()
    agent.start()
    assert begin(agent) == 201
