"""The seam between what rapkit decides and where it is kept.

A box is something that lives long and runs seldom: a conversation thread in the runtime, an invocation or a subscription in a tool server.
Letters are put into it, a worker claims it, acts, and commits everything that follows from it at once. `Store` is the list of promises;
`tests/mailbox/contract.py` holds any implementation to them.
"""

from rapkit.mailbox.box import Box, Fact, Letter, Mail, NewBox, Reception
from rapkit.mailbox.commit import Claim, Commit, Entry, Record, Timer
from rapkit.mailbox.lane import lane_under, lanes_of_box, lanes_of_name
from rapkit.mailbox.outgoing import Outcome, Outgoing, Parcel, Settlement, Taken
from rapkit.mailbox.quota import Quota
from rapkit.mailbox.store import MAIL_BYTES, MOST_COUNTED, OUTBOX, Lease, Load, Stopped, Store

__all__ = [
    "MAIL_BYTES",
    "MOST_COUNTED",
    "OUTBOX",
    "Box",
    "Claim",
    "Commit",
    "Entry",
    "Fact",
    "Lease",
    "Letter",
    "Load",
    "Mail",
    "NewBox",
    "Outcome",
    "Outgoing",
    "Parcel",
    "Quota",
    "Reception",
    "Record",
    "Settlement",
    "Stopped",
    "Store",
    "Taken",
    "Timer",
    "lane_under",
    "lanes_of_box",
    "lanes_of_name",
]
