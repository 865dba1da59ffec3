"""A server of sorts, to be killed: it runs a shell script, and appends what it would make durable to the file `journal`.

    python -m tests.server.crashing_runner LOOP SCRIPT [before-start]

With `before-start` it kills itself between the record and the start.
"""

import asyncio
import os
import signal
import sys
from pathlib import Path

import uvloop

from rapkit.server.processes import Processes


async def main(script: str, dies_before_start: bool) -> None:
    async def record(token: str) -> None:
        write(f"record {token}")
        if dies_before_start:
            os.kill(os.getpid(), signal.SIGKILL)

    async def forget(token: str) -> None:
        write(f"forget {token}")

    await Processes(record, forget).run(["sh", "-c", script])


def write(line: str) -> None:
    with Path("journal").open("a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    loop, script, *when = sys.argv[1:]
    new_loop = uvloop.new_event_loop if loop == "uvloop" else asyncio.new_event_loop
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main(script, bool(when)))
