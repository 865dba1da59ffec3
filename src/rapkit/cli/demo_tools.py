"""The toolset that `rapkit demo` serves."""

import asyncio
import time
from pathlib import Path

from rapkit import Durations, Toolset

# A second instead of six, so that a demo need not wait long for what a killed server held.
tools = Toolset("demo", description="Forecasts and postcards", durations=Durations(lease=1))

POSTBOX = Path("postbox.txt")


@tools.tool(read_only=True)
async def forecast(city: str, days: int = 3) -> str:
    """Forecast for a city.

    Args:
        city: Where.
        days: How far ahead, 1 to 14.
    """
    return f"Sunny in {city} for the next {days} days."


@tools.tool(read_only=True, long_running=True)
async def climate_report(city: str, seconds: float = 3) -> str:
    """A report that takes its time. It only reads, so it may be begun again.

    Args:
        city: Where.
        seconds: How long to compute.
    """
    await asyncio.sleep(seconds)
    return f"It has been getting warmer in {city}."


@tools.tool(long_running=True)
def send_postcard(to: str, seconds: float = 3) -> str:
    """Send a postcard and wait for the receipt. Nobody wants to get it twice.

    Args:
        to: Who gets it.
        seconds: How long the post office takes.
    """
    with POSTBOX.open("a") as postbox:
        postbox.write(f"Dear {to}, wish you were here.\n")
    time.sleep(seconds)
    return f"Sent to {to}."
