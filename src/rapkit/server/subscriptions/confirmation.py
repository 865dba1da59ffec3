"""What a subscribing call creates: the subscription's box, and the result that confirms it (SUB-1, SUB-2).

A subscription to a topic is confirmed when its call ends. A generator runs first: its confirmation waits as a record beside the
subscription, and is sent with the first checkpoint or event, or once the generator has run for `confirm_after` seconds.
"""

from dataclasses import dataclass

from rapkit.errors import ToolError
from rapkit.mailbox import Commit, Fact, Store
from rapkit.protocol import Invocation
from rapkit.server.invocation import StoredCall, subscription_kind
from rapkit.server.services import ToolsetServices
from rapkit.server.subscriptions.subscription_state import SubscriptionState
from rapkit.server.subscriptions.topics import subscribe_mail
from rapkit.server.tools.tool import Tool

CONFIRMATION = "confirmation"
"""The record that holds the confirming `tool_result` of a subscription that is not confirmed yet."""


@dataclass(frozen=True, slots=True)
class NewSubscription:
    """A subscription to be made: the text that confirms it, and what is committed to make it. Its own box is the first one."""

    text: str
    commit: Commit
    confirmed: bool

    @property
    def box_id(self) -> str:
        """The id of its box."""
        return self.commit.spawn[0].id


async def new_subscription(services: ToolsetServices, tool: Tool, call: StoredCall) -> NewSubscription:
    """The subscription that a call makes; `ToolError` if the server has too many."""
    traits = tool.subscription
    assert traits is not None
    assert isinstance(call.message, Invocation)
    text = f"Subscribed to {tool.name}. The id of the subscription is {call.message.id}."
    if traits.pattern is not None:
        topic = traits.pattern.fill(tool.signature.bind(call.message.arguments))
        sub_state = SubscriptionState(call, topic)
        box, new_mail = subscribe_mail(call.toolset, topic, sub_state.box_id)
        return NewSubscription(text, Commit(spawn=[sub_state.to_box(), box], new_mails=[new_mail]), confirmed=True)
    most = services.config.limits.subscriptions
    if await services.store.backlog(subscription_kind(call.toolset)) >= most:
        raise ToolError(f"the server has {most:,} subscriptions already and takes no more. Try again later.")
    sub_state = SubscriptionState(call, confirmed=False)
    # A call that is repeated after it was forgotten finds its subscription at work: the generator does not answer a second time.
    known = await services.store.known(sub_state.box_id)
    return NewSubscription(text, Commit(spawn=[sub_state.to_box()]), confirmed=known)


def confirmation_fact(box_id: str, body: bytes) -> Fact:
    """The record of a confirmation that is to be sent later."""
    return Fact(box_id, CONFIRMATION, "", body)


async def stored_confirmation(store: Store, sub_state: SubscriptionState) -> bytes:
    """The confirmation that a subscription still owes its runtime; empty if it has confirmed."""
    if sub_state.confirmed:
        return b""
    (record,) = await store.records(sub_state.box_id, CONFIRMATION)
    return record.body
