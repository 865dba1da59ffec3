"""The toolset that the command line is tried on."""

import asyncio
from pathlib import Path
from typing import Any, Literal

from rapkit import Image, ToolError, Toolset

tools = Toolset("weather", description="Forecasts")


@tools.tool(read_only=True)
async def forecast(city: str, days: int = 3, unit: Literal["C", "F"] = "C") -> str:
    """Forecast for a city.

    Args:
        city: Where.
        days: How far ahead, in days, counted from the day on which you ask, which is today.
        unit: The scale.
    """
    return f"Sunny in {city} for {days} days, in °{unit}."


@tools.tool(read_only=True)
def echo(
    text: str = "",
    number: float = 0,
    flag: bool = False,
    tags: list[str] | None = None,
    more: dict[str, int] | None = None,
) -> dict[str, Any]:
    """Say what was understood."""
    return {"text": text, "number": number, "flag": flag, "tags": tags, "more": more}


@tools.tool
def refuse() -> str:
    """Fail, and say why."""
    raise ToolError("There is no such station.")


@tools.tool(read_only=True)
def picture() -> list[str | Image]:
    """A picture and a word."""
    return ["Here it is:", Image(b"\x89PNG", "image/png")]


@tools.tool(read_only=True, long_running=True)
async def nap(seconds: float, started: str) -> str:
    """Sleep.

    Args:
        seconds: How long.
        started: The file that is made once it sleeps.
    """
    Path(started).touch()
    await asyncio.sleep(seconds)
    return "awake"


@tools.tool(read_only=True)
def colour() -> str:
    """Try to paint the terminal."""
    return "\x1b[31mred"
