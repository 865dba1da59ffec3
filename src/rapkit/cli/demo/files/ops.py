"""The second tool server of `rapkit demo`: something that happens by itself, and something a person has to permit."""

from typing import Any

from rapkit import Context, Delivery, Durations, ToolError, Toolset

tools = Toolset("ops", description="Alerts, logs and roll-outs", durations=Durations(lease=1))


@tools.subscription(topic="alerts/{service}")
async def watch_alerts(service: str, payload: dict[str, Any]) -> str:
    """Tell me of alerts of a service. Each one is looked into by a thread of its own.

    Args:
        service: Whose.
    """
    return f"{service}: {payload['text']}"


@tools.webhook("/hooks/alerts", style="github", secret="env:RAPKIT_DEMO_WEBHOOK_SECRET")  # noqa: S106 - where it is
async def alerts(delivery: Delivery) -> None:
    """What a monitoring system would call."""
    await tools.emit(f"alerts/{delivery.json['service']}", delivery.json, id=delivery.id)


@tools.tool(read_only=True)
async def read_logs(service: str) -> str:
    """The last lines of a service's log.

    Args:
        service: Whose.
    """
    return f"{service}: cache is cold\n{service}: cache is warm again, 12 ms"


@tools.tool
async def roll_out(build: int, ctx: Context) -> str:
    """Bring a build to production. Asks the user when; that need not be done before.

    Args:
        build: Which one.
    """
    when = await ctx.choose(f"Roll out build {build}?", ["Now", "Tonight", "Not at all"], default="Not at all")
    if when == "Not at all":
        raise ToolError("The user does not want it.")
    return f"Build {build} goes live: {when.lower()}."
