"""A toolset that handles a lot of secrets, and says where it can about none."""

import os

from rapkit import Context, Delivery, Event, OAuthProvider, ToolError, Toolset

provider = OAuthProvider(
    "provider",
    authorize_url=os.environ["PROVIDER_URL"] + "/authorize",
    token_url=os.environ["PROVIDER_URL"] + "/token",
    client_id="tools-under-test",
    client_secret="env:CLIENT_SECRET",
    scopes=["read"],
)
tools = Toolset(
    "vault",
    tokens={"agent": "env:AGENT_TOKEN"},
    caller_secrets={"signer": "env:CALLER_SECRET"},
    webhook_secrets=["env:CALLBACK_SECRET"],
    allow_callbacks=["127.0.0.1"],
    oauth=[provider],
    store="sqlite:///vault.db",
)


@tools.tool
async def keep(secret: str, ctx: Context) -> str:
    """Keep a secret."""
    ctx.state["secret"] = secret
    await ctx.view("vault", {"kept": secret})
    if await ctx.choose(f"Really keep {secret}?", ["Yes", f"No, drop {secret}"], remember="user") != "Yes":
        raise ToolError("Dropped.")
    return secret


@tools.tool
async def act(ctx: Context) -> str:
    """Act for the user."""
    token = await ctx.oauth("provider")
    done = await ctx.run(["sh", "-c", "read -r secret; echo ${#secret}"], input=token)
    return f"a token of {done.stdout.strip()} characters"


@tools.tool
async def fail(secret: str) -> str:
    """Fail, and know too much."""
    raise RuntimeError("this is for the log alone")


@tools.subscription
async def watch(secret: str, ctx: Context):  # type: ignore[no-untyped-def]
    """Watch a secret."""
    yield Event(f"still {secret}", cursor=f"after {secret}")
    await ctx.sleep(3600)


@tools.subscription(topic="secrets/{secret}")
async def hear(secret: str, payload: dict[str, str]) -> str:
    """Hear of a secret."""
    return payload["told"]


@tools.webhook("/hooks/secrets", style="github", secret="env:SOURCE_SECRET")
async def told(delivery: Delivery) -> None:
    await tools.emit(f"secrets/{delivery.json['topic']}", delivery.json, id=delivery.id)
