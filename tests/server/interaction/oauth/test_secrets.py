"""Nothing secret in any log, page, message or file, whatever happens (OAU-2)."""

import logging
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from rapkit.logs import JsonLines
from rapkit.mailbox import Store
from rapkit.server.interaction.oauth import RedirectEndpoint
from rapkit.server.interaction.oauth.errors import ProviderUnavailable
from tests.server.interaction.oauth.browser import Browser
from tests.server.interaction.oauth.conftest import ManualClock
from tests.server.interaction.oauth.provider_server import LOGGERS, ProviderServer, answers
from tests.server.interaction.oauth.test_redirect import ANN, Desk, ask


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_no_secret_is_found_in_logs_pages_errors_or_files(
    store: Store,
    provider: ProviderServer,
    clock: ManualClock,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    method: str,
) -> None:
    """OAU-2"""
    caplog.set_level(logging.DEBUG)
    provider.token_auth = method
    github = provider.declare()
    desk = Desk(store, [github], clock)
    endpoint = RedirectEndpoint(lambda: desk.oauth)
    told: list[str] = []
    states: set[str] = set()

    async def come_back(call: str, *, allow: bool = True) -> None:
        flow = await desk.suspend(call, "q/1")
        query = urlsplit(await Browser("ann").decide(flow.auth_url, allow=allow)).query
        states.update(parse_qs(query)["state"])
        for _ in range(2):
            status, headers, body, _ = await ask(endpoint, query.encode())
            told.append(f"{status} {headers} {body}")

    await come_back("c_granted")
    await come_back("c_denied", allow=False)
    clock.time += 4000
    assert await desk.oauth.vault.usable(ANN, github)
    seen = set(provider.seen)
    provider.trouble = answers(200, "[" + '"access_token"'.join(seen))
    await come_back("c_garbled")
    provider.trouble = answers(302, b"", {"location": f"{provider.url}/me"})
    await come_back("c_redirected")
    clock.time += 4000
    with pytest.raises(ProviderUnavailable) as unavailable:
        await desk.oauth.vault.usable(ANN, github)
    provider.trouble = None
    provider.revoke_all()
    assert await desk.oauth.vault.usable(ANN, github) is None
    provider.client_secret += "-rotated"
    await come_back("c_misconfigured")
    await desk.oauth.aclose()

    lines = [JsonLines().format(each) for each in caplog.records if not each.name.startswith(LOGGERS)]
    told += [*lines, str(unavailable.value), repr(github), *map(str, desk.woken)]
    files = b"".join(file.read_bytes() for file in tmp_path.glob("tools.db*"))
    secrets = {*provider.seen, github.client_secret or "", *states}
    assert len(provider.seen) > 10, "codes, verifiers, access and refresh tokens"
    assert any("httpx2" in line for line in lines), "the HTTP client's own log is among it"
    assert [(secret, text) for secret in secrets for text in told if secret in text] == []
    assert [secret for secret in secrets if secret.encode() in files] == []
