"""Scripts in which public servers say how their calls are shown."""

import pytest

from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import ForeignServer, describe, result

PLAN = """
- user: edit
  calls: [edit: {path: "src/app/main.py", text: "one two three four five", lines: [3, 7]}]
- answer: edit
  say: Done.
"""

SCRIPTS = {
    """let parts = args.path.split("/"); let name = parts[parts.len() - 1]; "Edit " + name""": "Edit main.py",
    """let s = "Edit"; if args.lines != () { s += " line " + args.lines[0]; } s""": "Edit line 3",
    """let t = args.text; if t.len() > 10 { t = t.sub_string(0, 10) + "..."; } `Write "${t}"`""": 'Write "one two th..."',
    """"In " + args["path"] + if args.mode == () { "" } else { " as " + args.mode }""": "In src/app/main.py",
    """for line in args.lines { print(line) }""": 'edit(path="src/app/main.py", text="one two three four five", lines=[3, 7])',
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_call_is_shown_as_a_foreign_script_says_it(up: Up, join: Join, script: str) -> None:
    """Item 16: `let`, several statements, `+=`, `split`, `len`, `sub_string`, indices; what is not understood is shown as a call."""
    server = join(ForeignServer({"edit": lambda _: []}))
    server.manifest["tools"] = [describe("edit", displayScript=script)]
    runtime = up(PLAN, [server.url])

    thread = runtime.thread("edit")
    (call,) = server.invocations(count=1)

    (pending,) = runtime.look(thread)["pending_calls"]
    assert pending["display"] == SCRIPTS[script]
    server.send(call, result(call, "ok"))
    runtime.until(thread, "Done.")
