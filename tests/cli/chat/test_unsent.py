"""What was said and is not heard yet."""

from rapkit.cli.chat.displayed_thread import DisplayedThread
from rapkit.cli.chat.unsent import Unsent, UnsentMessage


def test_a_message_is_gone_once_it_stands_in_the_journal() -> None:
    thread, unsent = DisplayedThread("t"), Unsent()
    first, second = UnsentMessage(thread, "one"), UnsentMessage(thread, "one")
    unsent.add(first)
    unsent.add(second)
    assert unsent.next() is first
    first.id = "msg_1"
    unsent.stored(first)
    assert unsent.next() is second
    assert list(unsent.of(thread)) == [first, second]

    unsent.heard(thread, {"kind": "user", "id": "msg_1", "text": "one"})
    assert list(unsent.of(thread)) == [second]


def test_the_journal_may_be_faster_than_the_answer() -> None:
    thread, unsent = DisplayedThread("t"), Unsent()
    message = UnsentMessage(thread, "one")
    unsent.add(message)
    unsent.heard(thread, {"kind": "user", "id": "msg_1", "text": "one"})
    message.id = "msg_1"
    unsent.stored(message)
    assert not list(unsent.of(thread))


def test_first_words_are_known_by_what_they_say() -> None:
    thread, unsent = DisplayedThread(), Unsent()
    message = UnsentMessage(thread, "one", begins_thread=True)
    unsent.add(message)
    unsent.stored(message)
    unsent.heard(DisplayedThread(), {"kind": "user", "id": "msg_7", "text": "one"})
    assert list(unsent.of(thread)) == [message]
    unsent.heard(thread, {"kind": "user", "id": "msg_8", "text": "one"})
    assert not list(unsent.of(thread))


def test_what_is_not_stored_would_be_lost() -> None:
    here, there, unsent = DisplayedThread("t"), DisplayedThread("u"), Unsent()
    safe, not_safe = UnsentMessage(here, "safe"), UnsentMessage(here, "not safe")
    for message in (safe, not_safe, UnsentMessage(there, "elsewhere")):
        unsent.add(message)
    unsent.stored(safe)
    unsent.drop_stored(here)
    assert [message.text for message in unsent.not_stored] == ["not safe", "elsewhere"]
    assert list(unsent.of(here)) == [not_safe]
