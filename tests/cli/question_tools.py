"""A toolset whose tool asks somebody, and shows things meanwhile."""

from rapkit import Context, Toolset

tools = Toolset("asking")


@tools.tool
async def buy(what: str, ctx: Context) -> str:
    """Buy something.

    Args:
        what: It.
    """
    await ctx.view("basket", {"what": what})
    how = await ctx.choose(f"How do we buy {what}?", ["At market", "Limit order", "Not now"], default="Limit order")
    sure = await ctx.choose("Sure?", ["Yes", "No"])
    return f"{how}: {sure}"
