import os
import signal
from collections.abc import AsyncIterator

import pytest

from tests.server.sink import Sink, listening

# Not test modules themselves, so pytest would not explain their assertions. Here, because other folders use them too, and come first.
pytest.register_assert_rewrite(
    "tests.crash.crash_run",
    "tests.crash.interactive_crash_run",
    "tests.crash.processes",
    "tests.interop.http_peer",
    "tests.interop.processes",
)

# A test, and whoever reads its log, wants to know where something comes from that nobody foresaw.
os.environ.setdefault("RAPKIT_TRACEBACK", "1")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # Started in the background by a shell. The processes we start would inherit it, and never hear a Ctrl-C.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with listening() as sink:
        yield sink
