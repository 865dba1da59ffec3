"""Large messages that are valid, several at once: all of them arrive, and the agent goes on answering.

That they are parsed and stored off the event loop is shown by `tests/test_off_loop.py` and `tests/stores/test_sqlite.py`.
"""

import base64
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from tests.hardening.raw import Reply, connect, head
from tests.hardening.test_validation_bombs import PLAN, SilentServer
from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import result
from tests.interop.http_peer import eventually, get, post

SENDERS = 6


def test_large_results_that_come_together_all_arrive(up: Up, join: Join) -> None:
    server = join(SilentServer())
    runtime = up(PLAN, [server.url])
    threads = [runtime.thread("work") for _ in range(SENDERS)]
    calls = server.invocations("work", SENDERS)
    image = base64.b64encode(os.urandom(11_000_000)).decode()
    messages = [
        {**result(call, ""), "content": [{"type": "image", "data": image, "mediaType": "image/png"}]} for call in calls
    ]
    over = threading.Event()
    answers: set[int] = set()

    def look() -> None:
        while not over.is_set():
            answers.add(get(f"{runtime.url}/healthz")[0])

    looking = threading.Thread(target=look)
    looking.start()
    try:
        with ThreadPoolExecutor(SENDERS) as senders:
            sent = senders.map(
                lambda each: post(each[0]["callback_url"], each[1])[0], zip(calls, messages, strict=True)
            )
        assert list(sent) == [200] * SENDERS
        for thread in threads:
            runtime.until(thread, "It is ")
    finally:
        over.set()
        looking.join()

    assert answers == {200}


def test_large_messages_that_do_not_end_leave_memory_to_others(up: Up, join: Join) -> None:
    """Each of them could be held for as long as its sender says something now and then."""
    server = join(SilentServer())
    most = 1024 * 1024
    runtime = up(PLAN, [server.url], tables={"agent.capacity": {"callback": most, "mail": most}})
    for _ in range(2):
        runtime.thread("work")
    first, second = server.invocations("work", 2)
    url = first["callback_url"]

    with ExitStack() as stack:
        for _ in range(12):
            connection = stack.enter_context(connect(url))
            connection.sendall(head("POST", url, "Content-Length: 1000000") + b" " * 900_000)
        assert Reply(connection).status == 503  # the last of them
        assert post(second["callback_url"], result(second, "x" * 1_000_000))[0] == 503
        assert post(url, result(first, "small"))[0] == 200
    eventually(lambda: post(second["callback_url"], result(second, "x" * 1_000_000))[0] == 200)
