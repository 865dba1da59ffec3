"""Toolsets in tests: served in memory, called, asked back, crashed, with a clock that tests advance.

async with testing.serve(tools) as client:
    result = await client.call("forecast", city="Oslo")
"""

from rapkit.testing.callbacks import Callbacks
from rapkit.testing.calls import Call, Subscription
from rapkit.testing.client import Client
from rapkit.testing.clock import ManualClock
from rapkit.testing.people import Choice, Consent
from rapkit.testing.providers import Providers
from rapkit.testing.requests import Reply
from rapkit.testing.result import Result
from rapkit.testing.serving import serve

__all__ = [
    "Call",
    "Callbacks",
    "Choice",
    "Client",
    "Consent",
    "ManualClock",
    "Providers",
    "Reply",
    "Result",
    "Subscription",
    "serve",
]
