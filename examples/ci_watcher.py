"""Events from a webhook: report finished GitHub builds to subscribers.

    GITHUB_WEBHOOK_SECRET=... rapkit serve examples/ci_watcher.py

Have GitHub send "Workflow runs" as JSON to /hooks/github, with the same secret.
"""

from typing import Any

from rapkit import Delivery, Event, Toolset

tools = Toolset("ci-watcher", description="Tells you how builds end")


@tools.subscription(topic="builds/{owner}/{repo}")
async def watch_builds(owner: str, repo: str, payload: dict[str, Any], branch: str = "main") -> Event | None:
    """Tell me when a build of a repository has ended.

    Args:
        owner: Whose repository it is.
        repo: The repository.
        branch: Which branch to watch.
    """
    run = payload["workflow_run"]
    if run["head_branch"] != branch:
        return None
    return Event(f"{owner}/{repo}: {run['name']} on {branch}: {run['conclusion']}. {run['html_url']}")


@tools.subscription(topic="builds/{owner}/{repo}", associative=True)
async def wait_for_build(owner: str, repo: str, commit: str, payload: dict[str, Any]) -> Event | None:
    """Tell me when the build of one commit has ended, and then no more.

    Args:
        owner: Whose repository it is.
        repo: The repository.
        commit: The commit's full hash.
    """
    run = payload["workflow_run"]
    if run["head_sha"] != commit:
        return None
    return Event(f"The build of {commit[:7]} ended: {run['conclusion']}.", final=True)


@tools.webhook("/hooks/github", style="github", secret="env:GITHUB_WEBHOOK_SECRET")  # noqa: S106 - where it is found
async def github(delivery: Delivery) -> None:
    """Pass finished builds on. GitHub is answered once they are stored; what it sends twice is passed on once."""
    if delivery.event != "workflow_run" or delivery.json["action"] != "completed":
        return
    await tools.emit(f"builds/{delivery.json['repository']['full_name']}", delivery.json, id=delivery.id)


if __name__ == "__main__":
    tools.run(port=8002)
