"""What makes the ids of a thread's calls differ from those of every other thread, at every other agent.

The suffix is taken from the whole thread id, never from a part of it: threads of one moment have ids that begin alike. It is taken from the
store's incarnation too, so that an agent on a restored or copied store, whose threads have the ids and the call numbers of before, never
makes an id that a tool server has seen.
"""

import base64
import hashlib

_CHARACTERS = 16


def call_id_suffix(incarnation: str, thread_id: str) -> str:
    """The end of the ids of all calls that a thread makes in one incarnation of its store."""
    digest = hashlib.sha256(f"{incarnation}/{thread_id}".encode()).digest()
    return base64.b32encode(digest).decode().lower()[:_CHARACTERS]
