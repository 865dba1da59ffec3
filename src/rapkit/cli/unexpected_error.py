"""Describe an unexpected exception in one sentence: the last resort of the command line."""

import os

from rapkit.printable import printable

_VARIABLE = "RAPKIT_TRACEBACK"
_LONGEST = 200


def sentence_about(error: Exception) -> str:
    """What went wrong and where, for the user and for whom they report it to. If `RAPKIT_TRACEBACK` is set, it is raised instead."""
    if os.environ.get(_VARIABLE):
        raise error
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    said = printable(" ".join(str(error).split()))[:_LONGEST].rstrip(".")
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    return f"Nobody foresaw this: {what}{_place(error)}. Run it again with {_VARIABLE}=1 to see how it came about, and please report it."


def _place(error: Exception) -> str:
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    return "" if at is None else f" ({os.path.basename(at.tb_frame.f_code.co_filename)}, line {at.tb_lineno})"
