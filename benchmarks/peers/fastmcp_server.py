"""The peer: FastMCP with the same tool, over streamable HTTP.

Configured for speed within what its documentation offers: plain JSON answers instead of event streams, quiet. With
sessions, because without them it builds a transport for every request and is slower by a third.

    python -m benchmarks.peers.fastmcp_server 8002
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
        json_response=True,
        log_level="error",
        show_banner=False,
        uvicorn_config={"access_log": False},
    )
