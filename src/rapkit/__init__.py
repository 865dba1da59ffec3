"""rapkit: the Reactive Agent Protocol for Python."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rapkit.client.client import Client
    from rapkit.delivery.client_certificate import ClientCertificate
    from rapkit.delivery.request_signer import SigV4
    from rapkit.errors import RapkitError, ToolError
    from rapkit.http.limits import HttpLimits
    from rapkit.kernel.limits import Confirmations, ThreadLimits, Timeouts
    from rapkit.runtime.agent import Agent
    from rapkit.runtime.budget import Budget
    from rapkit.runtime.config import Capacity
    from rapkit.runtime.schedules import Schedule
    from rapkit.runtime.server import Server
    from rapkit.server.config import Durations
    from rapkit.server.endpoints.webhook_delivery import Delivery
    from rapkit.server.interaction.oauth.provider import OAuthProvider
    from rapkit.server.limits import Limits
    from rapkit.server.resources.close_hooks import ClosedThread
    from rapkit.server.subscriptions.event import Event
    from rapkit.server.tools.content import Diff, Image
    from rapkit.server.tools.context import Context
    from rapkit.server.tools.hooks import HookedCall
    from rapkit.server.toolset import Toolset

__version__ = "0.1.0"

__all__ = [
    "Agent",
    "Budget",
    "Capacity",
    "Client",
    "ClientCertificate",
    "ClosedThread",
    "Confirmations",
    "Context",
    "Delivery",
    "Diff",
    "Durations",
    "Event",
    "HookedCall",
    "HttpLimits",
    "Image",
    "Limits",
    "OAuthProvider",
    "RapkitError",
    "Schedule",
    "Server",
    "SigV4",
    "ThreadLimits",
    "Timeouts",
    "ToolError",
    "Toolset",
]

_HOMES = {
    "Agent": "rapkit.runtime.agent",
    "Budget": "rapkit.runtime.budget",
    "Capacity": "rapkit.runtime.config",
    "Client": "rapkit.client.client",
    "ClientCertificate": "rapkit.delivery.client_certificate",
    "ClosedThread": "rapkit.server.resources.close_hooks",
    "Confirmations": "rapkit.kernel.limits",
    "Context": "rapkit.server.tools.context",
    "Delivery": "rapkit.server.endpoints.webhook_delivery",
    "Diff": "rapkit.server.tools.content",
    "Durations": "rapkit.server.config",
    "Event": "rapkit.server.subscriptions.event",
    "HookedCall": "rapkit.server.tools.hooks",
    "HttpLimits": "rapkit.http.limits",
    "Image": "rapkit.server.tools.content",
    "Limits": "rapkit.server.limits",
    "OAuthProvider": "rapkit.server.interaction.oauth.provider",
    "RapkitError": "rapkit.errors",
    "Schedule": "rapkit.runtime.schedules",
    "Server": "rapkit.runtime.server",
    "SigV4": "rapkit.delivery.request_signer",
    "ThreadLimits": "rapkit.kernel.limits",
    "Timeouts": "rapkit.kernel.limits",
    "ToolError": "rapkit.errors",
    "Toolset": "rapkit.server.toolset",
}


def __getattr__(name: str) -> object:
    # Names are looked up when they are used, so that the command line can answer --help without loading a web server.
    if name not in _HOMES:
        raise AttributeError(f"module 'rapkit' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
