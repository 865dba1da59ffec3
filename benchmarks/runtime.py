"""How fast is a durable runtime? rapkit, the floor program and LangGraph on SQLite; a million waiting threads; a very long thread.

    scripts/bench runtime

Contenders take turns in short rounds and medians are compared, because machines are noisy: read the ratios, not the figures.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import uvloop

from benchmarks import compaction, floor_wakes, hibernation, wakes
from benchmarks.figures import Figures
from benchmarks.hibernation import Wakes
from rapkit.kernel.compaction import CHARS_PER_TOKEN

GOAL_OVER_FLOOR = 0.5
GOAL_OVER_LANGGRAPH = 10
GOAL_WAKE = 1.5
SAMPLE = 300
WINDOW = 50


def main() -> None:
    """Measure, and say what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--at-once", type=int, default=64, help="threads that are woken at the same time")
    parser.add_argument("--threads", type=int, default=1_000_000, help="threads that wait")
    parser.add_argument("--entries", type=int, default=10_000, help="how long the long thread is")
    parser.add_argument("--turns", type=int, default=10_000, help="how long the long conversation is")
    parser.add_argument("--only", choices=["wakes", "million", "long", "turns"])
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        _child(*options.child)
        return
    if options.only in (None, "wakes"):
        compare_wakes(options.rounds, options.seconds, options.at_once)
    if options.only in (None, "million"):
        compare_hibernation(options.threads)
    if options.only in (None, "long"):
        compare_lengths(options.entries)
    if options.only in (None, "turns"):
        compare_turns(options.turns)


def compare_wakes(rounds: int, seconds: float, at_once: int) -> None:
    """Durable wakes a second beside those of the floor program and LangGraph."""
    print(
        f"Wakes a second, {at_once} at once: a result comes, it is saved, the model is asked, its next call is saved and sent"
    )
    found: dict[str, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for name in ("rapkit", "floor", "LangGraph"):
            found[name].append(_measure("wakes", name, str(seconds), str(at_once))[0])
    for name, rates in found.items():
        print(f"  {name:<12}{statistics.median(rates):>8,.0f}   {_spread(rates)}")
    for name, goal in (("floor", GOAL_OVER_FLOOR), ("LangGraph", GOAL_OVER_LANGGRAPH)):
        ratio = statistics.median(found["rapkit"]) / statistics.median(found[name])
        print(f"  rapkit / {name:<10}{ratio:>5.2f}   (goal {goal})")
    print()


def compare_hibernation(threads: int) -> None:
    """Memory and wake time with few and with many threads that wait."""
    print(f"Waking one of so many threads that wait for a tool ({SAMPLE} wakes, one at a time)")
    few = _measure("million", "1000")
    many = _measure("million", str(threads))
    for count, (p50, p99, megabytes) in ((1000, few), (threads, many)):
        print(f"  {count:>9,}  p50 {p50:6.2f} ms  p99 {p99:6.2f} ms  memory {megabytes:5.0f} MB")
    print(
        f"  ratio of p50 {many[0] / few[0]:.2f} (goal at most {GOAL_WAKE}), memory grows by {many[2] - few[2]:.0f} MB\n"
    )


def compare_lengths(entries: int) -> None:
    """The wake time of a short and of a long thread."""
    print(
        f"Waking a thread with a journal of so many entries, of which the model is shown {WINDOW} or more ({SAMPLE} wakes)"
    )
    short = _measure("long", str(2 * WINDOW))
    long = _measure("long", str(entries))
    for length, (p50, p99, _) in ((2 * WINDOW, short), (entries, long)):
        print(f"  {length:>9,}  p50 {p50:6.2f} ms  p99 {p99:6.2f} ms")
    print(f"  ratio of p50 {long[0] / short[0]:.2f}")


def compare_turns(turns: int) -> None:
    """What the model is shown of a conversation that goes on and on, and how long its turns take."""
    first, last, largest, summaries = _measure("turns", str(turns))
    tokens = largest / CHARS_PER_TOKEN
    print(f"\nA conversation of {turns:,} turns with a model that takes {compaction.CONTEXT_WINDOW:,} tokens")
    print(
        f"  largest question  {largest:,.0f} characters, about {tokens / compaction.CONTEXT_WINDOW:.0%} of what it takes"
    )
    print(f"  summaries         {summaries:,.0f}")
    print(f"  turn, p50         {first:.2f} ms in the first tenth, {last:.2f} ms in the last: ratio {last / first:.2f}")


def _spread(values: list[float]) -> str:
    return "rounds: " + " ".join(f"{value:.0f}" for value in values)


def _measure(*what: str) -> list[float]:
    """One measurement in a process of its own, so that none has to bear the memory or the imports of another."""
    command = [sys.executable, "-m", "benchmarks.runtime", "--child", *what]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [float(number) for number in done.stdout.split()]


def _child(what: str, *rest: str) -> None:
    with tempfile.TemporaryDirectory(prefix="rapkit-bench-") as name:
        folder = Path(name)
        match what, rest:
            case "wakes", (contender, seconds, at_once):
                measure = _contender(contender)
                figures = uvloop.run(measure(folder, float(seconds), 4 * int(at_once), int(at_once)))
                print(figures.per_second)
            case "fill", (into, threads):
                uvloop.run(hibernation.fill(Path(into), int(threads)))
            case "million", (threads,):
                _measure("fill", name, threads)  # in another process, whose memory is none of ours
                _print(uvloop.run(hibernation.wake_some(folder, int(threads), SAMPLE)))
            case "long", (entries,):
                _print(uvloop.run(hibernation.wake_long(folder, int(entries), SAMPLE, WINDOW)))
            case "turns", (turns,):
                long = uvloop.run(compaction.talk(folder, int(turns)))
                tenth = max(1, int(turns) // 10)
                first, last = (1000 * statistics.median(part) for part in (long.times[:tenth], long.times[-tenth:]))
                print(first, last, long.largest, long.summaries)


def _contender(name: str) -> Callable[[Path, float, int, int], Coroutine[Any, Any, Figures]]:
    if name == "rapkit":
        return wakes.measure
    if name == "floor":
        return floor_wakes.measure
    from benchmarks.peers import langgraph_wakes

    return langgraph_wakes.measure


def _print(found: Wakes) -> None:
    print(found.p50_ms, found.p99_ms, found.megabytes)


if __name__ == "__main__":
    main()
