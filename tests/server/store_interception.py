"""Getting between a server in a test and its store, at a moment that the test chooses."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rapkit.testing.crashable_run import CrashableRun

Meddle = Callable[[str, tuple[Any, ...]], Awaitable[None]]
"""Told the name of an operation and its arguments; what it raises is what the server gets."""


async def _let_pass(_name: str, _arguments: tuple[Any, ...]) -> None: ...


def meddle(monkeypatch: pytest.MonkeyPatch, *, before: Meddle = _let_pass, after: Meddle = _let_pass) -> None:
    """From now on, have something done before or after every operation that a served toolset asks its store for."""
    really_do = CrashableRun.do

    async def do(life: CrashableRun, name: str, *arguments: Any, **options: Any) -> Any:
        await before(name, arguments)
        result = await really_do(life, name, *arguments, **options)
        await after(name, arguments)
        return result

    monkeypatch.setattr(CrashableRun, "do", do)
