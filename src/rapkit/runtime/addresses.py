"""Where tools call back: a URL that is proof of the one call it was made for.

A token is made when an invocation is sent and never stored; the same call always has the same one, so that a server recognises a
repetition. It is good as long as the call is live: until its result, for a subscription until its end, for a call that was given up four
days longer; never after the thread was closed.
"""

from rapkit.signer import Signer

PATH = "/callback/"
_PURPOSE = "callback"


class Addresses:
    """Makes and reads callback URLs."""

    def __init__(self, public_url: str, signer: Signer) -> None:
        self._base = public_url.rstrip("/") + PATH
        self._signer = signer

    @property
    def seal(self) -> str:
        """What has to be kept to make the same URL again: the address it is below, and the name of the key it is signed with."""
        return f"{self._signer.newest} {self._base}"

    def callback_url(self, thread_id: str, call_id: str, seal: str = "") -> str:
        """Where this call is answered. With the `seal` of its first time it is what it was then: servers tell a repetition by the URL."""
        key, _, base = (seal or self.seal).partition(" ")
        return base + self._signer.sign(_PURPOSE, thread_id, call_id, key=key)

    def read(self, token: str) -> tuple[str, str] | None:
        """Thread and call of a token of ours; None for any other."""
        parts = self._signer.read(_PURPOSE, token)
        return None if parts is None or len(parts) != 2 else (parts[0], parts[1])
