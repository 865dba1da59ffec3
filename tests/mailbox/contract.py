"""The contract of a store: what any implementation of `rapkit.mailbox.Store` must do.

A store's own test module subclasses `StoreContract` and provides the fixture `harness` (see `harness.py`); every test goes through the
protocol alone. `OneHandleContract` is the part for data that only one handle can reach, such as a database in memory.
"""

from tests.mailbox.accept_mail import LettersContract
from tests.mailbox.claimed_creation import ShortcutsContract
from tests.mailbox.claims import WorkContract
from tests.mailbox.commits import CommitContract
from tests.mailbox.facts import FactsContract, NotesContract
from tests.mailbox.fencing import FencingContract
from tests.mailbox.load import LoadContract
from tests.mailbox.new_boxes import BeginningsContract
from tests.mailbox.outbox import OutboxContract
from tests.mailbox.queries import LookingContract
from tests.mailbox.shared_store import SeveralHandlesContract
from tests.mailbox.stop_boxes import StoppingContract
from tests.mailbox.sweep import HousekeepingContract
from tests.mailbox.traces import TracesContract
from tests.mailbox.wait import WaitingContract


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
