"""The wire: every RAP message as pure data, read from bytes and written to bytes. No I/O.

`parse_*` functions read what a peer sent and raise InvalidMessage or InvalidToolset; `read_toolset` takes what is usable of a toolset;
`dump` writes.
"""

from rapkit.protocol.arguments import ArgumentChecker
from rapkit.protocol.callbacks import (
    Callback,
    OAuthRequest,
    SubscriptionEvent,
    ToolResult,
    UserChoice,
    ViewUpdate,
    parse_callback,
)
from rapkit.protocol.content import (
    ContentItem,
    Diff,
    DiffSegment,
    DisplaySegment,
    ImageContent,
    ImageSegment,
    OtherSegment,
    Picture,
    TextContent,
    TextSegment,
)
from rapkit.protocol.invocation import BadInvocation, Invocation, parse_invocation
from rapkit.protocol.message import Message, dump
from rapkit.protocol.notices import (
    CallCancelled,
    ChoiceMade,
    Migrate,
    ThreadClosed,
    parse_call_cancelled,
    parse_choice_made,
    parse_migrate,
    parse_thread_closed,
)
from rapkit.protocol.toolset import Annotations, ToolDefinition, ToolsetDocument, parse_toolset
from rapkit.protocol.usable_toolset import UnusableTool, UsableToolset, read_toolset

__all__ = [
    "Annotations",
    "ArgumentChecker",
    "BadInvocation",
    "CallCancelled",
    "Callback",
    "ChoiceMade",
    "ContentItem",
    "Diff",
    "DiffSegment",
    "DisplaySegment",
    "ImageContent",
    "ImageSegment",
    "Invocation",
    "Message",
    "Migrate",
    "OAuthRequest",
    "OtherSegment",
    "Picture",
    "SubscriptionEvent",
    "TextContent",
    "TextSegment",
    "ThreadClosed",
    "ToolDefinition",
    "ToolResult",
    "ToolsetDocument",
    "UnusableTool",
    "UsableToolset",
    "UserChoice",
    "ViewUpdate",
    "dump",
    "parse_call_cancelled",
    "parse_callback",
    "parse_choice_made",
    "parse_invocation",
    "parse_migrate",
    "parse_thread_closed",
    "parse_toolset",
    "read_toolset",
]
