"""How fast is a durable tool server? rapkit on a file and in memory, the floor program, and FastMCP, in the same run.

    scripts/bench

Contenders take turns in short rounds (A B C A B C ...) and medians are compared, because machines are noisy: read the
ratios, not the figures.
"""

import argparse
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import uvloop

from benchmarks.figures import Figures
from benchmarks.load import Load, endpoint_of
from benchmarks.peers import fastmcp_load

HERE = Path(__file__).parent
NAP = 60.0
# More than any server has workers, half of it in threads.
OCCUPY = 600

GOAL_OVER_FLOOR = 0.75
GOAL_OVER_MEMORY = 0.75
GOAL_OVER_FASTMCP = 6.5
GOAL_OVER_FASTEST = 2.7
OWN_CLIENT = "FastMCP as it comes, own client"


class Server:
    """A server process of ours, from its start until its end by its own id."""

    def __init__(self, name: str, command: list[str], ready_path: str, logs: Path) -> None:
        port = _free_port()
        self.url = f"http://127.0.0.1:{port}"
        self._ready_url = self.url + ready_path
        self._log = logs / f"{name}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [part.replace("PORT", str(port)) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def wait_until_ready(self, seconds: float = 30.0) -> None:
        """Return once it answers HTTP, whatever the answer."""
        deadline = time.monotonic() + seconds
        while self._process.poll() is None and time.monotonic() < deadline:
            try:
                urllib.request.urlopen(self._ready_url, timeout=1).close()
            except urllib.error.HTTPError:
                return
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise SystemExit(f"{self._process.args!r} did not start:\n{self._log.read_text()[-2000:]}")

    def end(self) -> None:
        """End it: politely, then not."""
        self._process.terminate()
        try:
            self._process.wait(2)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def rapkit(name: str, store: str, folder: Path) -> Server:
    """Start `rapkit serve` with the adder."""
    command = [str(Path(sys.executable).with_name("rapkit")), "serve", str(HERE / "adder.py")]
    quiet = ["--log-level", "warning"]
    return Server(name, [*command, "--port", "PORT", "--store", store, *quiet], "/.well-known/rap-toolset", folder)


def floor(folder: Path) -> Server:
    """Start the floor program."""
    command = [sys.executable, "-m", "benchmarks.floor_server", "PORT", str(folder / "floor.db")]
    return Server("floor", command, "/.well-known/rap-toolset", folder)


def fastmcp(folder: Path, *options: str) -> Server:
    """Start FastMCP's adder."""
    command = [sys.executable, "-m", "benchmarks.peers.fastmcp_server", "PORT", *options]
    return Server("-".join(["fastmcp", *options]), command, "/mcp", folder)


async def throughput(
    servers: dict[str, Server], plain: Server, tuned: Server, rounds: int, seconds: float
) -> dict[str, list[Figures]]:
    """Calls with 32 in flight, each contender in turn."""
    found: dict[str, list[Figures]] = defaultdict(list)
    for _ in range(rounds):
        for name, server in servers.items():
            async with Load(endpoint_of(server.url)) as load:
                found[name].append(await load.full(seconds))
        found[OWN_CLIENT].append(await fastmcp_load.own_client(f"{plain.url}/mcp", seconds))
        for way, measure in fastmcp_load.WAYS.items():
            found[f"FastMCP tuned, {way}"].append(await measure(f"{tuned.url}/mcp", seconds))
    return found


async def acknowledgements(
    free: Server, busy: Server, rounds: int, seconds: float, rate: float
) -> tuple[Figures, Figures]:
    """Acknowledgements at the same steady rate, of calls that take no time and of calls that sleep on busy workers."""
    at_once, asleep = Figures(), Figures()
    async with Load(endpoint_of(busy.url)) as load:
        await load.occupy(OCCUPY, NAP)
    for _ in range(rounds):
        async with Load(endpoint_of(free.url)) as load:
            at_once.acks += (await load.paced(rate, seconds)).acks
        async with Load(endpoint_of(busy.url)) as load:
            asleep.acks += (await load.paced(rate, seconds, NAP)).acks
    return at_once, asleep


def disk_syncs_per_second(folder: Path) -> float:
    """What durability can cost at most here: small appends, each forced to the disk."""
    descriptor = os.open(folder / "syncs", os.O_CREAT | os.O_WRONLY)
    started = time.perf_counter()
    for _ in range(200):
        os.write(descriptor, b"x" * 4096)
        os.fdatasync(descriptor)
    os.close(descriptor)
    return 200 / (time.perf_counter() - started)


def median_rate(rounds: list[Figures]) -> float:
    """Calls per second in the middle one of several rounds."""
    return statistics.median(each.per_second for each in rounds)


def report(found: dict[str, list[Figures]]) -> None:
    """Print what the throughput rounds say."""
    rates = {name: median_rate(figures) for name, figures in found.items()}
    print(f"\n{'calls acknowledged, executed, answered; 32 in flight':<60}{'calls/s':>9}{'ack p50':>10}{'ack p99':>10}")
    for name, figures in found.items():
        acks = Figures(acks=[ack for each in figures for ack in each.acks])
        times = f"{acks.ack_ms(50):7.1f} ms{acks.ack_ms(99):7.1f} ms" if acks.acks else ""
        print(f"  {name:<58}{rates[name]:>9,.0f}{times}")

    durable = rates["rapkit, file"]
    peers = {name: rate for name, rate in rates.items() if name.startswith("FastMCP")}
    fastest = max(peers, key=lambda name: peers[name])
    goals = {"the floor": GOAL_OVER_FLOOR, "rapkit, :memory:": GOAL_OVER_MEMORY, OWN_CLIENT: GOAL_OVER_FASTMCP}
    goals[fastest] = GOAL_OVER_FASTEST
    print(f"\n{'ratios':<60}{'':>9}{'goal':>10}")
    for name in ("the floor", "rapkit, :memory:", *peers):
        note = " (its fastest)" if name == fastest else ""
        print(f"  {f'rapkit, file / {name}{note}':<58}{durable / rates[name]:>9.2f}{goals.get(name, ''):>10}")


def report_acknowledgements(at_once: Figures, asleep: Figures, rate: float) -> None:
    """Print what the paced rounds say."""
    print(f"\n{f'acknowledgement at {rate:,.0f} calls/s, rapkit, file':<69}{'p50':>10}{'p99':>10}")
    for name, figures in {
        "handlers return at once": at_once,
        f"handlers sleep {NAP:.0f} s, all workers busy": asleep,
    }.items():
        print(f"  {name:<67}{figures.ack_ms(50):7.1f} ms{figures.ack_ms(99):7.1f} ms")


@contextlib.contextmanager
def ending(servers: list[Server]) -> Iterator[None]:
    """End what was started, whatever happens."""
    try:
        yield
    finally:
        for server in servers:
            server.end()


async def main(rounds: int, seconds: float, rate: float | None) -> None:
    """Start everybody, measure, print."""
    started: list[Server] = []
    # Not in /tmp, which is memory on many machines and would make durability look free.
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="rapkit-bench-") as name, ending(started):
        folder = Path(name)

        def start(server: Server) -> Server:
            started.append(server)
            server.wait_until_ready()
            return server

        contenders = {
            "rapkit, file": start(rapkit("file", f"sqlite:///{folder}/file.db", folder)),
            "rapkit, :memory:": start(rapkit("memory", "sqlite:///:memory:", folder)),
            "the floor": start(floor(folder)),
        }
        plain, tuned = start(fastmcp(folder)), start(fastmcp(folder, "tuned"))
        print(
            f"{os.cpu_count()} cores; {disk_syncs_per_second(folder):,.0f} syncs/s; {rounds} rounds of {seconds} s each"
        )
        found = await throughput(contenders, plain, tuned, rounds, seconds)
        report(found)

        # Well below what it can do: a queue in front of a full server would hide what the handlers do to it.
        rate = rate or min(1000.0, median_rate(found["rapkit, file"]) / 3)
        busy = start(rapkit("busy", f"sqlite:///{folder}/busy.db", folder))
        at_once, asleep = await acknowledgements(contenders["rapkit, file"], busy, rounds, seconds, rate)
        report_acknowledgements(at_once, asleep, rate)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Measure rapkit's tool server beside the floor program and FastMCP.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="length of a round")
    parser.add_argument("--rate", type=float, help="calls per second while acknowledgements are timed")
    options = parser.parse_args()
    uvloop.run(main(options.rounds, options.seconds, options.rate))
