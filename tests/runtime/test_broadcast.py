"""What those are told who look on."""

from rapkit.runtime.broadcast import (
    Broadcast,
    BroadcastEnded,
    BroadcastMessage,
    Changed,
    Delta,
    MaybeChanged,
    Reset,
    Watcher,
)

MANY = 3000


async def told(watcher: Watcher) -> list[BroadcastMessage]:
    """Everything, without waiting for more."""
    news = []
    while (one := await watcher.next(0)) != MaybeChanged():
        news.append(one)
    return news


async def test_everybody_who_looks_at_a_thread_is_told_in_order() -> None:
    broadcast = Broadcast()
    with broadcast.watch("t") as first, broadcast.watch("t") as second, broadcast.watch("u") as other:
        for news in (Changed(), Delta("a"), Delta("a")):
            broadcast.publish("t", news)

        assert await told(first) == await told(second) == [Changed(), Delta("a"), Delta("a")]
        assert await told(other) == []
        assert broadcast.watched == 2
    assert broadcast.watched == 0


async def test_pieces_of_what_is_in_the_journal_by_now_are_not_told_any_more() -> None:
    watcher = Watcher()
    for news in (Delta("he"), Delta("llo"), Changed(), Delta("bye"), Reset(), Delta("good")):
        watcher.publish(news)

    assert await told(watcher) == [Changed(), Reset(), Delta("good")]


async def test_who_is_too_slow_misses_pieces_and_is_told_so() -> None:
    watcher = Watcher()
    for number in range(MANY):
        watcher.publish(Delta(str(number)))

    assert await told(watcher) == [Reset(), Changed()]

    watcher.publish(Delta("the end of what was lost"))
    watcher.publish(Changed())
    watcher.publish(Delta("the next text"))
    assert await told(watcher) == [Changed(), Delta("the next text")]


async def test_changes_are_never_missed_and_never_pile_up() -> None:
    watcher = Watcher()
    for _ in range(MANY):
        watcher.publish(Changed())
    assert await told(watcher) == [Changed()]

    for _ in range(MANY):
        watcher.publish(Reset())
        watcher.publish(Changed())
    pile = await told(watcher)
    assert len(pile) <= MANY
    assert pile[-1] == Changed()


async def test_the_end_is_told_to_everybody_even_to_those_who_come_later() -> None:
    broadcast = Broadcast()
    with broadcast.watch("t") as slow:
        for number in range(MANY):
            broadcast.publish("t", Delta(str(number)))
        broadcast.end()
        assert (await told(slow))[-1] == BroadcastEnded()
    with broadcast.watch("t") as late:
        assert await told(late) == [BroadcastEnded()]
