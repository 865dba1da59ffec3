"""The tools that the chat is tried with."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

from rapkit import Context, Diff, Event, Image, OAuthProvider, Toolset

provider = OAuthProvider(
    "example",
    authorize_url="https://accounts.example.com/authorize",
    token_url="https://accounts.example.com/token",
    client_id="chat",
    client_secret="none-of-your-business",
    scopes=["read"],
)
tools = Toolset("desk", oauth=[provider], store="sqlite:///:memory:")


@tools.tool(read_only=True, display='"Look at the sky over " + args.city')
def forecast(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}."


@tools.tool(read_only=True, long_running=True, display='"Sleep until there is " + args.file')
async def nap(file: str) -> str:
    """Sleep until there is such a file."""
    while not Path(file).exists():
        await asyncio.sleep(0.05)
    return "well rested"


@tools.subscription(associative=True, display='"Watch the letterbox " + args.folder')
async def watch(folder: str, ctx: Context) -> AsyncIterator[Event]:
    """Tell when a letter is there."""
    seen = int(ctx.cursor or 0)
    while True:
        new_mails = sorted(Path(folder).glob("*.letter"))
        for number, new_mail in enumerate(new_mails[seen:], start=seen + 1):
            yield Event(new_mail.read_text(), cursor=str(number))
        seen = len(new_mails)
        await asyncio.sleep(0.05)


@tools.subscription
async def doorbell(folder: str, ctx: Context) -> AsyncIterator[Event]:
    """Tell when somebody rings."""
    rung = int(ctx.cursor or 0)
    while True:
        for number, ring in enumerate(sorted(Path(folder).glob("*.ring"))[rung:], start=rung + 1):
            yield Event(ring.read_text(), cursor=str(number))
            rung = number
        await asyncio.sleep(0.05)


@tools.tool
async def deploy(version: str, ctx: Context) -> str:
    """Deploy a version."""
    when = await ctx.choose(f"When do we deploy {version}?", ["At once", "Tonight", "Never"], default="Never")
    return f"Deployed: {when}."


@tools.tool(read_only=True)
def picture() -> list[str | Image]:
    """A picture and a word."""
    return ["Here it is:", Image(b"\x89PNG" * 3000, "image/png")]


@tools.tool
def edit() -> Diff:
    """Change a file."""
    return Diff("poem.txt", "--- a/poem.txt\n+++ b/poem.txt\n@@ -1 +1 @@\n-roses are blue\n+roses are red\n")


@tools.tool(requires_auth="example")
async def mail(ctx: Context) -> str:
    """Read somebody's mail."""
    return f"a token of {len(await ctx.oauth('example'))} letters"
