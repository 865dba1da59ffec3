"""What an agent in the process of the chat warns of."""

import asyncio
import logging

from rapkit.cli.chat.warning_handler import show_warnings

log = logging.getLogger("rapkit.test")


async def test_warnings_of_any_thread_are_shown_while_the_chat_lasts() -> None:
    shown: list[str] = []
    two = asyncio.Event()

    def show(text: str) -> None:
        shown.append(text)
        if len(shown) == 2:
            two.set()

    with show_warnings(show):
        log.info("nobody needs this")
        log.warning("%s offers nothing", "it")
        await asyncio.to_thread(log.error, "it ended")
        await asyncio.wait_for(two.wait(), 60)
    log.warning("too late")
    await asyncio.sleep(0)
    assert shown == ["it offers nothing", "it ended"]
