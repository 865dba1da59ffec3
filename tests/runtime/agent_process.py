"""An agent in a process of its own, to be killed: `python -m tests.runtime.agent_process STORE PORT LEDGER SERVER...`.

Its model is the obedient one. It writes to the ledger when it is asked and when it replies, and what contains the word "block" it answers
only once there is a file LEDGER.release.
"""

import asyncio
import os
import sys
from pathlib import Path

from rapkit.kernel.completion import Question, Reply
from rapkit.kernel.conversation import Heard
from rapkit.runtime.config import Patience
from tests.runtime.agents import ScriptedReplies, last_heard, working

LEASE = 0.6


async def main(store: str, port: int, ledger: Path, servers: list[str]) -> None:
    descriptor = os.open(ledger, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    async def model(question: Question) -> Reply | str:
        first = question.conversation[0]
        assert isinstance(first, Heard)
        name = first.texts[0].split()[0]
        os.write(descriptor, f"{name} asked {os.getpid()}\n".encode())
        heard = last_heard(question)
        while heard.texts and "block" in heard.texts[-1] and not ledger.with_suffix(".release").exists():
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.002)
        os.write(descriptor, f"{name} replied {os.getpid()}\n".encode())
        return ScriptedReplies()(question)

    async with working(model, servers, store, port=port, patience=Patience(lease=LEASE, grace=0.5)):
        await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:]))
