"""The peer: FastMCP with the same tool, over streamable HTTP, without logs.

    python -m benchmarks.peers.fastmcp_server 8002            as it comes: answers are event streams
    python -m benchmarks.peers.fastmcp_server 8002 tuned      for speed, within what its documentation offers: plain JSON answers

With sessions both times, because without them it builds a transport for every request and is slower by a third.
"""

import sys

from fastmcp import FastMCP

tools: FastMCP[None] = FastMCP("adder")


@tools.tool
async def add(a: int, b: int) -> str:
    """Add two numbers."""
    return str(a + b)


if __name__ == "__main__":
    tools.run(
        transport="http",
        host="127.0.0.1",
        port=int(sys.argv[1]),
        json_response="tuned" in sys.argv,
        log_level="error",
        show_banner=False,
        uvicorn_config={"access_log": False},
    )
