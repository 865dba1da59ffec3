"""Tools, a choice and an image: `rapkit serve examples/weather.py` serves them."""

import asyncio
import struct
import zlib

from rapkit import Context, Image, ToolError, Toolset

tools = Toolset("weather", description="Forecasts, maps and evacuations")


@tools.tool(read_only=True)
async def forecast(city: str, days: int = 3) -> str:
    """Forecast for a city.

    Args:
        city: Where.
        days: How far ahead, 1 to 14.
    """
    return f"Sunny in {city} for the next {days} days."


@tools.tool(read_only=True, long_running=True)
async def climate_report(city: str, ctx: Context, years: int = 5) -> str:
    """A report that takes its time and shows how far it is.

    Args:
        city: Where.
        years: How far back.
    """
    for year in range(years):
        await ctx.progress(year, years, f"reading year {year + 1}")
        await asyncio.sleep(1)
    return f"It has been getting warmer in {city}."


@tools.tool(read_only=True)
def temperature_map(city: str) -> list[str | Image]:
    """A map of the temperatures around a city, from cold (blue) to warm (red)."""
    rows = [bytes([0, *(value for x in range(64) for value in (4 * x, 0, 255 - 4 * x))])] * 64
    return [f"The temperatures around {city}:", Image(png(64, 64, b"".join(rows)), "image/png")]


@tools.tool(destructive=True)
async def evacuate(city: str, ctx: Context) -> str:
    """Order everyone out of a city, if the user really wants it."""
    answer = await ctx.choose(f"Really evacuate {city}?", ["Yes", "No"], default="No")
    if answer == "No":
        raise ToolError("The user declined.")
    return f"Everyone is leaving {city}."


def png(width: int, height: int, rows: bytes) -> bytes:
    """A picture of red, green and blue bytes; each row begins with a zero."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


if __name__ == "__main__":
    tools.run(port=8001)
