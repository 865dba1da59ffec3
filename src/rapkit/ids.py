"""Generate new ids."""

import secrets
import time


def new_id(prefix: str) -> str:
    """A new unique id. Later ones sort behind earlier ones (to the millisecond), which keeps database indexes compact."""
    return f"{prefix}_{time.time_ns() // 1_000_000:012x}{secrets.token_hex(8)}"
