"""The contract of a store: what any implementation of `rapkit.mailbox.Store` must do.

A store's own test module subclasses `StoreContract` and provides the fixture `harness` (see `harness.py`); every test goes through the
protocol alone. `OneHandleContract` is the part for data that only one handle can reach, such as a database in memory.
"""

from tests.mailbox.accept_mail import AcceptMailContract
from tests.mailbox.claimed_creation import ClaimedCreationContract
from tests.mailbox.claims import ClaimsContract
from tests.mailbox.commits import CommitContract
from tests.mailbox.facts import FactsContract, NotesContract
from tests.mailbox.fencing import FencingContract
from tests.mailbox.load import LoadContract
from tests.mailbox.new_boxes import NewBoxesContract
from tests.mailbox.outbox import OutboxContract
from tests.mailbox.queries import QueriesContract
from tests.mailbox.shared_store import SharedStoreContract
from tests.mailbox.stop_boxes import StopBoxesContract
from tests.mailbox.sweep import SweepContract
from tests.mailbox.traces import TracesContract
from tests.mailbox.wait import WaitContract


class OneHandleContract(
    AcceptMailContract,
    NewBoxesContract,
    ClaimsContract,
    CommitContract,
    FactsContract,
    NotesContract,
    FencingContract,
    StopBoxesContract,
    OutboxContract,
    ClaimedCreationContract,
    WaitContract,
    QueriesContract,
    LoadContract,
    TracesContract,
    SweepContract,
):
    """What can be asked of one handle."""


class StoreContract(OneHandleContract, SharedStoreContract):
    """Everything."""
