"""The log records of rapkit among all that a test captures.

Other libraries write when they please: asyncio warns of a child process that was gone before it looked. No test may depend on that.
"""

import logging

import pytest


def ours(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Records of rapkit's own loggers."""
    return [record for record in caplog.records if record.name.partition(".")[0] == "rapkit"]


def our_messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What they say."""
    return [record.getMessage() for record in ours(caplog)]
