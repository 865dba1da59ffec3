"""The script in the guide does what the guide says."""

from pathlib import Path

from rapkit.models import open_model
from tests.models.conversations import answer, ask, call, heard, question, said

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "models.md"


async def test_the_script_of_the_guide(tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PAGE.read_text().partition("```yaml\n")[2].partition("```")[0])
    model = open_model(f"scripted:{plan}")

    asked = (await ask(model, question("Will it Rain in Oslo?"))).reply
    assert asked.text == "Let me look."
    assert asked.calls[0].arguments == {"city": "Oslo"}
    watching = ("watch", said(call("s1", "storm_alerts")), heard(answer("s1", "ok", "storm_alerts")))
    assert (await ask(model, question(*watching))).reply.text == "I keep watch."
    event = said(call("s1-e4", "storm_alerts", kind="interrupt:s1 (subscription remains active)"))
    storm = question(*watching, said(text="I keep watch."), event, heard(answer("s1-e4", "Storm!", "storm_alerts")))
    assert (await ask(model, storm)).reply.text == "Warning number 1: Storm!"
    over = question(*watching, said(text="I keep watch."), event, heard(answer("s1-e4", "All clear.", "storm_alerts")))
    assert (await ask(model, over)).reply.calls[0].arguments == {"tool_call_id": "s1"}
