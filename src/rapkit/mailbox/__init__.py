"""The interface between rapkit's logic and its stores.

A box is something that lives long and runs seldom: a conversation thread in the runtime, an invocation or a subscription in a tool server.
Mail is put into it; a worker claims it, acts, and commits everything that follows at once. `Store` lists the guarantees;
`tests/mailbox/contract.py` holds any implementation to them.
"""

from rapkit.mailbox.box import AcceptResult, Box, Fact, Mail, NewBox, NewMail
from rapkit.mailbox.commit import Claim, Commit, Entry, Record, Timer
from rapkit.mailbox.lane import lane_under, lanes_of_box, lanes_of_name
from rapkit.mailbox.outgoing import OutboxRow, Outcome, Outgoing, Settlement, TakenPost
from rapkit.mailbox.quota import Quota
from rapkit.mailbox.store import MAIL_BYTES, MOST_COUNTED, OUTBOX, Lease, Load, StoppedBoxes, Store

__all__ = [
    "MAIL_BYTES",
    "MOST_COUNTED",
    "OUTBOX",
    "AcceptResult",
    "Box",
    "Claim",
    "Commit",
    "Entry",
    "Fact",
    "Lease",
    "Load",
    "Mail",
    "NewBox",
    "NewMail",
    "OutboxRow",
    "Outcome",
    "Outgoing",
    "Quota",
    "Record",
    "Settlement",
    "StoppedBoxes",
    "Store",
    "TakenPost",
    "Timer",
    "lane_under",
    "lanes_of_box",
    "lanes_of_name",
]
