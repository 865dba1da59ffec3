"""Where callbacks go: writes down what it is sent, then answers, or does not. A process of its own, so that it can be killed.

    python sink.py PORT LOG SEED FAULTS MOST

FAULTS is the share of requests that go wrong, MOST how often that may happen to one message. What is in the log was received, whatever the
sender was told; `answer` says what that was to be. What the test itself sends to /mark/... marks a place in the log, and never goes wrong.
"""

import asyncio
import json
import os
import random
import sys
import time
from collections import Counter

FAULTS = ("500", "hang up", "slow")


class Sink:
    def __init__(self, log: str, seed: str, faults: float, most: int) -> None:
        self._log = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._random = random.Random(seed)
        self._faults = faults
        self._most = most
        self._faulty: Counter[str] = Counter()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers["content-length"]))
        id = headers.get("webhook-id", "")
        path = first.split()[1]
        answer = "200" if path.startswith("/mark/") else self._choose(id)
        line = {"at": time.monotonic(), "path": path, "id": id, "began": self._began(headers), "body": body.decode()}
        os.write(self._log, json.dumps({**line, "answer": answer}).encode() + b"\n")
        if answer == "hang up":
            return False
        if answer == "slow":
            await asyncio.sleep(self._random.uniform(0.1, 0.6))
        status = "500 Internal Server Error" if answer == "500" else "200 OK"
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())
        await writer.drain()
        return True

    def _began(self, headers: dict[str, str]) -> float:
        """When it was sent, or up to a second before; we may have been too busy to read it at once."""
        now = time.time()
        return int(headers.get("webhook-timestamp", now)) - now + time.monotonic()

    def _choose(self, id: str) -> str:
        if self._random.random() >= self._faults or self._faulty[id] >= self._most:
            return "200"
        self._faulty[id] += 1
        return self._random.choice(FAULTS)


async def main(port: str, log: str, seed: str, faults: str, most: str) -> None:
    sink = Sink(log, seed, float(faults), int(most))
    server = await asyncio.start_server(sink.serve, "127.0.0.1", int(port), backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
