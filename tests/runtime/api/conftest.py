from collections.abc import AsyncIterator

import pytest

from tests.runtime.api.client import Api, Client, serving_api


@pytest.fixture
async def api(store: str) -> AsyncIterator[Api]:
    """The API over a store that nobody works on."""
    async with serving_api(store) as api:
        yield api


@pytest.fixture
def client(api: Api) -> Client:
    """A client of that."""
    return api.client()
