from collections.abc import AsyncIterator

import pytest

from tests.server.sink import Sink, listening


@pytest.fixture
async def sink() -> AsyncIterator[Sink]:
    async with listening() as sink:
        yield sink
