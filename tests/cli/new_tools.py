"""new-tools: tools for agents.

Serve them with `rapkit serve new_tools.py --reload`,
and try them with `rapkit chat` in another terminal.
"""

from collections.abc import AsyncIterator

from rapkit import Context, Event, ToolError, Toolset

tools = Toolset("new-tools", description="A small tea room.")

TEAS = {"green": 2, "black": 3}  # what there is, and how many seconds it takes


# A tool is a function. Its docstring is what the model reads,
# its type hints are what it may be called with.
@tools.tool(read_only=True)
async def list_teas() -> str:
    """Which teas there are."""
    return ", ".join(TEAS)


# A call may take seconds or days: the agent sleeps, and the answer wakes it.
@tools.tool(display='"Brewing " + args.tea + " tea"')
async def brew(tea: str, ctx: Context) -> str:
    """Brew a cup of tea.

    Args:
        tea: Which one, as list_teas names it.
    """
    if tea not in TEAS:
        # The model reads this, too: say what it can do about it.
        raise ToolError(f"There is no {tea} tea. There is: {', '.join(TEAS)}.")
    extra = ""
    if tea == "black":
        # A question to the user. Nothing runs while it is open; once it is answered,
        # the function runs again from the top, and this returns at once.
        milk = await ctx.choose("With milk?", ["Yes", "No"], default="No")
        extra = " with milk" if milk == "Yes" else ""
    for second in range(TEAS[tea]):
        await ctx.progress(second, TEAS[tea], "brewing")  # the user sees this
        await ctx.sleep(1)
    return f"A cup of {tea} tea{extra}."


# A subscription sends one event after the other, until it returns or the agent
# cancels it. After a restart it goes on behind its cursor. Associative events come
# into the conversation; of others each wakes a child thread of its own.
@tools.subscription(associative=True)
async def tea_time(seconds: int, ctx: Context) -> AsyncIterator[Event]:
    """Tell me again and again that it is time for tea.

    Args:
        seconds: How long to wait each time.
    """
    cups = int(ctx.cursor or 0)
    while True:
        await ctx.sleep(max(seconds, 1))
        cups += 1
        yield Event(f"It is time for cup {cups}.", cursor=str(cups))


if __name__ == "__main__":
    tools.run(port=8001)
