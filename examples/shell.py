"""A shell that streams its output and ends its programs with the call: `rapkit serve examples/shell.py`.

A caller can do anything on this machine that the server can. Give it a token, and a separate machine.
"""

from collections.abc import AsyncIterator

from rapkit import Context, Event, ToolError, Toolset

tools = Toolset("shell", description="Runs commands in a folder of the conversation's own")


@tools.tool(destructive=True, long_running=True)
async def run(command: str, ctx: Context) -> str:
    """Run a shell command and wait for its end. Cancelling the call ends the command and all it has started.

    Args:
        command: A line for sh.
    """
    done = await ctx.run(["sh", "-c", command], cwd=ctx.workspace())
    if done.returncode != 0:
        raise ToolError(f"exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


@tools.subscription(associative=True, destructive=True, rate=2, batch=True)
async def follow(command: str, ctx: Context) -> AsyncIterator[Event]:
    """Run a shell command and pass on its output while it runs, at most two messages a second.

    Args:
        command: A line for sh.
    """
    if ctx.cursor is not None:  # the server was restarted, and the command ended with it
        raise ToolError(
            "the server was interrupted while the command ran. Look at what it did before you run it again."
        )
    yield Event(f"$ {command}", cursor="started")
    process = ctx.run(["sh", "-c", command], cwd=ctx.workspace())
    async for line in process:
        yield Event(line, cursor="started")
    yield Event(f"exit status {process.returncode}", final=True)


if __name__ == "__main__":
    tools.run(port=8003)
