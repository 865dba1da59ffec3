"""The contract of a store: what any implementation of `rapkit.mailbox.Store` must do.

A store's own test module subclasses `StoreContract` and provides the fixture `harness` (see `harness.py`); every test goes through the
protocol alone. `OneHandleContract` is the part for data that only one handle can reach, such as a database in memory.
"""

from tests.mailbox.beginnings import BeginningsContract
from tests.mailbox.commits import CommitContract
from tests.mailbox.facts import FactsContract, NotesContract
from tests.mailbox.fencing import FencingContract
from tests.mailbox.housekeeping import HousekeepingContract
from tests.mailbox.letters import LettersContract
from tests.mailbox.load import LoadContract
from tests.mailbox.looking import LookingContract
from tests.mailbox.outbox import OutboxContract
from tests.mailbox.several import SeveralHandlesContract
from tests.mailbox.shortcuts import ShortcutsContract
from tests.mailbox.stopping import StoppingContract
from tests.mailbox.traces import TracesContract
from tests.mailbox.waiting import WaitingContract
from tests.mailbox.work import WorkContract


class OneHandleContract(
    LettersContract,
    BeginningsContract,
    WorkContract,
    CommitContract,
    FactsContract,
    NotesContract,
    FencingContract,
    StoppingContract,
    OutboxContract,
    ShortcutsContract,
    WaitingContract,
    LookingContract,
    LoadContract,
    TracesContract,
    HousekeepingContract,
):
    """What can be asked of one handle."""


class StoreContract(OneHandleContract, SeveralHandlesContract):
    """Everything."""
