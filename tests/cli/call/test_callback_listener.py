"""Where `rapkit call` is called back."""

import urllib.error
import urllib.request

import pytest

from rapkit.cli.call.callback_listener import CallbackListener


def test_a_message_that_is_too_large_is_refused_in_words() -> None:
    """CB-15: not by a reset, which its sender would take for an outage."""
    with CallbackListener() as listener:
        request = urllib.request.Request(listener.url, b"x" * (20 * 1024 * 1024), method="POST")
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=60)

    with refused.value as error:
        assert error.code == 413
