"""A tool server in a few lines: `rapkit serve examples/weather.py` serves it."""

import asyncio

from rapkit import Toolset

tools = Toolset("weather", description="Forecasts")


@tools.tool(read_only=True)
async def forecast(city: str, days: int = 3) -> str:
    """Forecast for a city.

    Args:
        city: Where.
        days: How far ahead, 1 to 14.
    """
    return f"Sunny in {city} for the next {days} days."


@tools.tool(read_only=True, long_running=True)
async def climate_report(city: str, seconds: float = 5) -> str:
    """A report that takes its time.

    Args:
        city: Where.
        seconds: How long to compute.
    """
    await asyncio.sleep(seconds)
    return f"It has been getting warmer in {city}."


if __name__ == "__main__":
    tools.run(port=8001)
