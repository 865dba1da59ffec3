"""Test toolsets and agents in memory: call them, answer their questions, crash them, and advance their clock.

async with testing.serve(tools) as client:
    result = await client.call("forecast", city="Oslo")

async with testing.agent(model=[…], tools=[tools]) as agent:
    thread = await agent.thread()
    assert await thread.ask("Will it rain?") == "No."
"""

from rapkit.testing.agent_requests import AskedToAuthorise, AskedToChoose
from rapkit.testing.callbacks import Callbacks
from rapkit.testing.calls import Call, Subscription
from rapkit.testing.client import Client
from rapkit.testing.clock import ManualClock
from rapkit.testing.fake_calls import FakeCall
from rapkit.testing.fake_tools import FakeTool, FakeTools
from rapkit.testing.network import Network
from rapkit.testing.providers import Providers
from rapkit.testing.requests import Reply
from rapkit.testing.result import Result
from rapkit.testing.serve_toolset import serve
from rapkit.testing.staged_agent import StagedAgent, agent
from rapkit.testing.staged_thread import StagedThread
from rapkit.testing.user_requests import Choice, Consent
from rapkit.testing.watched_model import WatchedModel

__all__ = [
    "AskedToAuthorise",
    "AskedToChoose",
    "Call",
    "Callbacks",
    "Choice",
    "Client",
    "Consent",
    "FakeCall",
    "FakeTool",
    "FakeTools",
    "ManualClock",
    "Network",
    "Providers",
    "Reply",
    "Result",
    "StagedAgent",
    "StagedThread",
    "Subscription",
    "WatchedModel",
    "agent",
    "serve",
]
