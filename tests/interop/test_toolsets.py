"""Foreign tool servers whose toolsets are odd, outdated or out of reach."""

from tests.interop.conftest import Join, Up
from tests.interop.foreign_server import ForeignServer, result
from tests.interop.http_peer import Answer, Json, Received

PLAN = """
- user: add
  calls: [add: {a: 1}]
- answer: add
  say: "It is {answer}."
- say: Fine.
"""


def three(call: Json) -> list[Json]:
    return [result(call, "3")]


class Upgraded(ForeignServer):
    """Knows only toolset version "2", which its manifest shows after the first 409 if `admits` is set."""

    def __init__(self, *, admits: bool) -> None:
        super().__init__({"add": three}, manifest={"version": "1"})
        self._admits = admits

    def answer(self, request: Received) -> Answer:
        """Refuse every other version."""
        if request.path == "/run" and request.json.get("toolset_version") != "2":
            if self._admits:
                self.manifest["version"] = "2"
            return Answer(409, b"toolset version conflict")
        return super().answer(request)


def test_a_call_refused_as_outdated_is_sent_again_with_the_new_version(up: Up, join: Join) -> None:
    """Item 11: DIS-10."""
    server = join(Upgraded(admits=True))
    runtime = up(PLAN, [server.url])

    runtime.until(runtime.thread("add"), "It is 3.")

    assert [call["toolset_version"] for call in server.invocations()] == ["1", "2"]


def test_a_call_refused_as_outdated_is_not_sent_again_with_the_same_version(up: Up, join: Join) -> None:
    """Item 11: a 4xx is not retried (INV-5), and the model is told that the call was not executed."""
    server = join(Upgraded(admits=False))
    runtime = up(PLAN, [server.url])

    thread = runtime.thread("add")

    journal = runtime.until(thread, "It is Error: ")
    (refused,) = [entry for entry in journal if entry["kind"] == "result"]
    assert "refuses the call as outdated" in refused["text"]
    assert "nothing was executed" in refused["text"]
    assert len(server.invocations()) == 1
