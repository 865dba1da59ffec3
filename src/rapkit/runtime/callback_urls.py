"""Callback URLs: each contains a signed token that is valid for one call only.

A token is made when an invocation is sent and never stored; the same call always has the same one, so that a server recognises a
repetition. It is good as long as the call is live: until its result, for a subscription until its end, for a call that was given up four
days longer; never after the thread was closed.
"""

import hashlib
from dataclasses import dataclass

from rapkit.signer import Signer

PATH = "/callback/"
_PURPOSE = "callback"


class CallbackUrls:
    """Makes and reads callback URLs."""

    def __init__(self, public_url: str, signer: Signer) -> None:
        self._base = public_url.rstrip("/") + PATH
        self._signer = signer

    @property
    def seal(self) -> str:
        """What has to be kept to make the same URL again: the address it is below, and the name of the key it is signed with."""
        return f"{self._signer.newest} {self._base}"

    def callback_url(self, thread_id: str, call_id: str, server: str, seal: str = "") -> str:
        """Where this call is answered. With the `seal` of its first time it is what it was then: servers tell a repetition by the URL."""
        key, _, base = (seal or self.seal).partition(" ")
        return base + self._signer.sign(_PURPOSE, thread_id, call_id, tag_of(server), key=key)

    def read(self, token: str) -> "CallbackTarget | None":
        """What a token of ours was made for; None for any other."""
        parts = self._signer.read(_PURPOSE, token)
        return None if parts is None or len(parts) != 3 else CallbackTarget(*parts)


@dataclass(frozen=True, slots=True)
class CallbackTarget:
    """The call that a callback URL was made for. `server` is the tag of the server it was sent to."""

    thread_id: str
    call_id: str
    server: str


def tag_of(server: str) -> str:
    """A server's name, in few characters."""
    return hashlib.sha256(server.encode()).hexdigest()[:8]
