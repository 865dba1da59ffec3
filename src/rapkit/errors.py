"""Every exception that rapkit raises.

RapkitError
├── ConfigError            a setting, a flag or a toolset's definition is wrong
├── ToolError              raised by a tool's author: its text reaches the model
├── ProtocolError          a peer sent something that is not RAP
│   ├── InvalidMessage       a message
│   └── InvalidToolset       a toolset document
├── ModelError             a model made no completion (`rapkit.models.errors`)
├── ThreadError            a thread cannot do what it was asked
│   ├── UnknownThread        there is none by that id
│   ├── ThreadClosed         it is closed, and takes nothing more
│   ├── UnknownCall          it has no such call (`rapkit.runtime.thread_commands`)
│   ├── NoSuchChoice         its question has no such answer (`rapkit.runtime.thread_commands`)
│   ├── KeyReused            an idempotency key came with another request (`rapkit.runtime.idempotency`)
│   └── ThreadParked         it stopped by itself; a new message revives it
├── StoreError             state could not be read or written
│   ├── Fenced               the claim was lost: another worker runs the box, nothing was changed
│   ├── StoreBusy            another process kept the database locked for too long; try again
│   ├── StoreFull            the disk has no room; try again when it has
│   ├── StoreLost            the files were deleted or replaced while they were open; restart the process
│   └── WrongKey             stored secrets do not open with the keys at hand
├── DeliveryError          a POST did not get through
│   └── ForbiddenTarget      the guard does not allow this address
├── AgentAway              a running agent cannot be reached from the command line (`rapkit.cli.agent_api`)
└── AgentRefused           it does not do what the command line asks of it (`rapkit.cli.agent_api`)
"""


class RapkitError(Exception):
    """Anything rapkit raises on purpose."""


class ConfigError(RapkitError):
    """A setting, a flag or a toolset's definition is wrong; the text says what to do."""


class ToolError(RapkitError):
    """A tool's way to tell the model what went wrong and what to try instead."""


class ProtocolError(RapkitError):
    """A peer sent something that is not RAP."""


class InvalidMessage(ProtocolError):
    """A message does not have the shape the protocol gives it."""


class InvalidToolset(ProtocolError):
    """A toolset document does not have the shape the protocol gives it."""


class ThreadError(RapkitError):
    """A thread cannot do what it was asked; the text says why, and what to do."""


class UnknownThread(ThreadError):
    """There is no thread by that id."""


class ThreadClosed(ThreadError):
    """The thread is closed, and takes nothing more."""


class ThreadParked(ThreadError):
    """The thread stopped by itself; a new message revives it."""


class StoreError(RapkitError):
    """State could not be read or written."""


class Fenced(StoreError):
    """The claim was lost: another worker runs the box, and nothing was changed."""


class StoreBusy(StoreError):
    """Another process kept the database locked for too long; trying again is safe."""


class StoreFull(StoreError):
    """The disk has no room for more; trying again is safe."""


class StoreLost(StoreError):
    """The files of the store were deleted, moved or replaced while they were open; what is written is lost with the process."""


class WrongKey(StoreError):
    """Stored secrets do not open with the keys at hand."""


class DeliveryError(RapkitError):
    """A POST did not get through."""


class ForbiddenTarget(DeliveryError):
    """The guard does not allow this address."""
