"""What the simulation has found, told step by step."""

import itertools
from typing import Any

from rapkit import Toolset, testing


def news() -> Toolset:
    tools = Toolset("news", store="sqlite:///:memory:")

    @tools.subscription(topic="news", rate=None)
    async def news(payload: Any) -> str:
        """Tell the news."""
        return str(payload)

    return tools


async def test_nothing_is_sent_after_a_cancel_though_the_server_died_when_it_heard_that_nobody_listens() -> None:
    """SUB-5: what was queued behind the event that was told so is not in the way of whoever cancels."""
    for steps in itertools.count():
        tools = news()
        async with testing.serve(tools) as client:
            subscription = await client.subscribe("news")
            client.callbacks.down()
            for number in (1, 2, 3):
                await tools.emit("news", number)
            await client.settled()
            client.callbacks.up()
            client.callbacks.fail(status=410)
            client.crash_after(steps)
            await client.advance(1)
            died = client.lost
            client.callbacks.hang()
            await client.crash()
            await client.settled()
            await subscription.cancel()
            client.callbacks.up()
            await client.settled()
        if not died:
            return
