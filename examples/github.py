"""Act for a user at GitHub: ask for authorization once, then store and refresh the token.

    GITHUB_CLIENT_ID=... GITHUB_CLIENT_SECRET=... rapkit serve examples/github.py --port 8004

Register an OAuth app at GitHub whose callback URL is http://127.0.0.1:8004/oauth/callback.
"""

import asyncio
import json
import os
import urllib.error
import urllib.request
from typing import Any

from rapkit import Context, OAuthProvider, ToolError, Toolset

API = os.environ.get("GITHUB_API_URL", "https://api.github.com")

github = OAuthProvider.github("env:GITHUB_CLIENT_ID", "env:GITHUB_CLIENT_SECRET", scopes=["repo"])
tools = Toolset("github", description="Issues at GitHub, as yourself", oauth=[github])


@tools.tool(read_only=True, requires_auth="github")
async def my_issues(ctx: Context) -> list[str]:
    """The open issues that are assigned to the user."""
    issues = await ask(ctx, "GET", "/issues")
    return [f"{issue['repository']['full_name']}#{issue['number']}: {issue['title']}" for issue in issues]


@tools.tool(requires_auth="github")
async def close_issue(repository: str, number: int, ctx: Context) -> str:
    """Close an issue, after asking the user.

    Args:
        repository: Such as acme/api.
        number: The issue's number.
    """
    if (
        await ctx.choose(f"Close {repository}#{number}?", ["Close it", "Leave it open"], default="Leave it open")
        != "Close it"
    ):
        raise ToolError("The user wants to leave it open.")
    await ask(ctx, "PATCH", f"/repos/{repository}/issues/{number}", {"state": "closed"})
    return f"{repository}#{number} is closed."


async def ask(ctx: Context, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
    """What GitHub answers. If it no longer takes the user's token, the user is asked again."""
    token = await ctx.oauth("github")
    try:
        return await asyncio.to_thread(send, token, method, path, body)
    except urllib.error.HTTPError as error:
        if error.code != 401:
            raise ToolError(f"GitHub answered {error.code} to {method} {path}.") from None
        token = await ctx.oauth("github", refused=token)
        return await asyncio.to_thread(send, token, method, path, body)


def send(token: str, method: str, path: str, body: dict[str, Any] | None) -> Any:
    """One request to GitHub's API."""
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/vnd.github+json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(API + path, data, headers, method=method)  # noqa: S310 - the operator chose it
    with urllib.request.urlopen(request, timeout=20) as answer:  # noqa: S310
        return json.load(answer)


if __name__ == "__main__":
    tools.run(port=8004)
