import asyncio
import socket
import threading
from collections.abc import Iterator

import pytest

from rapkit.delivery.name_resolver import NameResolver
from rapkit.errors import ConfigError

PATIENCE = 30.0


class Names:
    """A lookup that hangs for names that begin with `hang`, fails for those that begin with `none`, and answers at once for others."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.release = threading.Event()

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        if host.startswith("hang"):
            self.release.wait()
        if host.startswith("none"):
            raise socket.gaierror(-2, "Name or service not known")
        return ["192.0.2.1"]


@pytest.fixture
def names() -> Iterator[Names]:
    names = Names()
    yield names
    names.release.set()


async def ask(lookups: NameResolver, host: str) -> list[str]:
    async with asyncio.timeout(PATIENCE):
        return list(await lookups(host, 443))


async def hang(lookups: NameResolver, *hosts: str) -> list["asyncio.Task[list[str]]"]:
    """Ask for names that hang, and let their lookups begin."""
    asking = [asyncio.create_task(ask(lookups, host)) for host in hosts]
    await asyncio.sleep(0)
    return asking


async def until_slow(lookups: NameResolver, names: Names, *hosts: str) -> None:
    """Ask for names that hang until all are known to be slow, then let them end."""
    asking = await hang(lookups, *hosts)
    await asyncio.sleep(0.1)
    names.release.set()
    await asyncio.gather(*asking)
    names.release.clear()


async def give_up(asking: list["asyncio.Task[list[str]]"]) -> None:
    for task in asking:
        task.cancel()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_the_operating_system_is_asked() -> None:
    assert set(await NameResolver()("localhost", 80)) <= {"127.0.0.1", "::1"}


async def test_a_name_that_does_not_exist_fails_and_can_be_asked_for_again(names: Names) -> None:
    lookups = NameResolver(lookup=names)
    for _ in range(2):
        with pytest.raises(OSError, match="not known"):
            await ask(lookups, "none.test")

    assert (names.asked, lookups.running) == (["none.test"] * 2, 0)


async def test_new_names_that_hang_leave_threads_to_names_that_resolved_before(names: Names) -> None:
    lookups = NameResolver(8, lookup=names)
    await ask(lookups, "known.test")
    asking = await hang(lookups, *(f"hang-{number}.test" for number in range(50)))
    assert lookups.running == 6

    assert await ask(lookups, "known.test") == ["192.0.2.1"]
    await give_up(asking)


async def test_new_names_that_hang_keep_other_new_names_out_for_a_while_only(names: Names) -> None:
    lookups = NameResolver(8, patience=0.05, lookup=names)
    asking = await hang(lookups, *(f"hang-{number}.test" for number in range(6)))
    assert lookups.running == 6

    assert await ask(lookups, "new.test") == ["192.0.2.1"]
    await give_up(asking)


async def test_threads_that_hang_are_bounded(names: Names) -> None:
    lookups = NameResolver(8, patience=0.05, lookup=names)
    asking = await hang(lookups, *(f"hang-{number}.test" for number in range(50)))
    while lookups.running < 16:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)  # as long as it takes for several more to hang

    assert lookups.running == 16
    await give_up(asking)


async def test_names_that_were_slow_leave_threads_to_names_nobody_has_asked_for_yet(names: Names) -> None:
    lookups = NameResolver(16, patience=0.05, lookup=names)
    slow = [f"hang-{number}.test" for number in range(12)]
    await until_slow(lookups, names, *slow)
    asking = await hang(lookups, *slow)
    assert lookups.running == 2

    assert await ask(lookups, "new.test") == ["192.0.2.1"]
    await give_up(asking)


async def test_a_slow_name_that_answers_at_once_is_slow_no_longer(names: Names) -> None:
    lookups = NameResolver(8, patience=0.05, lookup=names)
    await until_slow(lookups, names, "hang-1.test", "hang-2.test")
    names.release.set()
    await ask(lookups, "hang-1.test")
    await ask(lookups, "hang-2.test")
    names.release.clear()
    asking = await hang(lookups, "hang-1.test", "hang-2.test")

    assert lookups.running == 2
    await give_up(asking)


async def test_a_name_is_looked_up_once_at_a_time_even_if_those_who_asked_gave_up(names: Names) -> None:
    lookups = NameResolver(8, lookup=names)
    for _ in range(5):
        await give_up(await hang(lookups, "hang.test"))
    (asking,) = await hang(lookups, "hang.test")
    names.release.set()

    assert await asking == ["192.0.2.1"]
    assert names.asked == ["hang.test"]


async def test_a_name_nobody_waits_for_any_more_is_not_looked_up(names: Names) -> None:
    lookups = NameResolver(1, lookup=names)
    first = await hang(lookups, "hang-1.test")
    await give_up(await hang(lookups, "hang-2.test"))
    last = await hang(lookups, "hang-3.test")
    names.release.set()
    await asyncio.gather(*first, *last)

    assert names.asked == ["hang-1.test", "hang-3.test"]


async def test_without_a_thread_to_start_a_lookup_fails_and_the_next_may_succeed(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    lookups = NameResolver(8, lookup=names)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await ask(lookups, "known.test")

    assert await ask(lookups, "known.test") == ["192.0.2.1"]


def test_no_thread_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="lookups"):
        NameResolver(0)
