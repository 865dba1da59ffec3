"""The first tool server of `rapkit demo`: something that takes its time."""

import json

from rapkit import Context, Durations, Toolset

# A second instead of six, so that nobody waits long for what a killed server held.
tools = Toolset("lab", description="Load tests", durations=Durations(lease=1))

STEP = 0.5
# How far it gets before the lab is killed, at most: however slow a machine is, there is something left to do then.
FIRST_PART = 0.75


@tools.tool(idempotent=True, long_running=True)
async def load_test(build: int, seconds: float, ctx: Context) -> str:
    """Put load on a build for some time, and see whether it holds.

    Args:
        build: Which one.
        seconds: For how long.
    """
    # What was measured so far is in the thread's own folder: whoever runs this again goes on there.
    notes = ctx.workspace() / "load_test.json"
    before = json.loads(notes.read_text()) if notes.exists() else {"runs": 0, "seconds": 0.0}
    measured = {**before, "runs": before["runs"] + 1, "from": before["seconds"], "of": seconds}
    while True:
        written = notes.with_suffix(".new")
        written.write_text(json.dumps(measured))
        written.replace(notes)
        if measured["seconds"] >= seconds:
            return f"Build {build} holds: 900 requests a second for {seconds:g} s, the slowest in 184 ms, no error."
        await ctx.sleep(STEP)
        if measured["runs"] > 1 or measured["seconds"] < FIRST_PART * seconds:
            measured["seconds"] += STEP
