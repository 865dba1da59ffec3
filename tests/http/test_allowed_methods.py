from rapkit.http.allowed_methods import AllowedMethods
from rapkit.http.health import Health
from tests.server.endpoint_server import opened


async def test_other_methods_are_refused_in_words() -> None:
    async with opened({"/healthz": AllowedMethods(Health(), "GET", "HEAD")}) as doors:
        answered = await doors.request("GET", "/healthz")
        refused = await doors.post("/healthz", b"{}")

    assert (answered.status, answered.json) == (200, {"ok": True})
    assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")
    assert refused.detail == "POST is not possible here. Send GET or HEAD."
