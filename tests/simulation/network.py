"""The network between the server and the runtime, and how the runtime answers: late, wrongly, or not at all, as the dice say."""

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import NamedTuple

from rapkit.delivery.http_client import HttpResponse
from rapkit.delivery.signatures import MESSAGE_ID
from rapkit.errors import DeliveryError
from tests.simulation.observed_history import Did, Kind, Message, ObservedHistory, Post
from tests.simulation.scenario import Weather

_OK, _MALFORMED, _UNKNOWN, _GONE, _UNAVAILABLE = 200, 400, 404, 410, 503


class _Fate(NamedTuple):
    arrives: bool
    status: int
    heard: bool


_FINE = _Fate(arrives=True, status=_OK, heard=True)
_WEATHER: dict[Weather, dict[_Fate, int]] = {
    "calm": {_FINE: 1},
    "rough": {
        _FINE: 64,
        _Fate(arrives=True, status=_UNAVAILABLE, heard=True): 11,
        _Fate(arrives=False, status=_OK, heard=False): 7,
        _Fate(arrives=True, status=_OK, heard=False): 9,
        _Fate(arrives=True, status=_UNKNOWN, heard=True): 2,
        _Fate(arrives=True, status=_GONE, heard=True): 2,
        _Fate(arrives=True, status=_MALFORMED, heard=True): 5,
    },
    "deserted": {
        _FINE: 50,
        _Fate(arrives=True, status=_UNKNOWN, heard=True): 20,
        _Fate(arrives=True, status=_GONE, heard=True): 20,
        _Fate(arrives=True, status=_UNAVAILABLE, heard=True): 10,
    },
}


class Network:
    """Carries POSTs to the runtime. `known` finds a message that was committed; `on_arrival` is told of one the runtime has taken."""

    def __init__(
        self,
        seed: str,
        stories: Mapping[str, ObservedHistory],
        known: Callable[[str], Message],
        on_arrival: Callable[[Message], None],
    ) -> None:
        self.weather: dict[str, Weather] = {}
        """Of each thread; where nothing is said it is calm."""
        self._dice = Random(f"{seed}/network")
        self._stories = stories
        self._known = known
        self._on_arrival = on_arrival
        self._ended: set[tuple[str, str]] = set()

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> HttpResponse:
        """One POST of the server's."""
        message = self._known(headers[MESSAGE_ID])
        sent = Message.read(message.id, url, body)
        assert (sent.thread, sent.call, sent.body) == (message.thread, message.call, message.body), (
            "not what was committed"
        )
        story = self._stories[message.thread]
        fate = self._fate(message)
        post = Post(message, fate.status, story.note(Did.BEGUN, message.kind, message.call, str(message)))
        message.posts.append(post)
        try:
            return await self._carry(post, fate, story)
        except asyncio.CancelledError:
            post.aborted = story.note(Did.ABORTED, message.kind, message.call, str(message))
            raise

    async def _carry(self, post: Post, fate: _Fate, story: ObservedHistory) -> HttpResponse:
        message = post.message
        await self._transit()
        if fate.arrives:
            post.arrived = story.note(Did.ARRIVED, message.kind, message.call, str(message))
            if fate.status == _OK:
                self._on_arrival(message)
            await self._transit()
        if not fate.heard:
            story.note(Did.LOST, message.kind, message.call, str(message))
            raise DeliveryError("The network has lost it.")
        post.answered = story.note(Did.ANSWERED, message.kind, message.call, f"{message} {fate.status}")
        return HttpResponse(fate.status)

    def _fate(self, message: Message) -> _Fate:
        call = (message.thread, message.call)
        if call in self._ended:
            return _Fate(arrives=True, status=_GONE, heard=True)
        fates = _WEATHER[self.weather.get(message.thread, "calm")]
        (fate,) = self._dice.choices(list(fates), list(fates.values()))
        if fate.status in (_UNKNOWN, _GONE) and message.kind is not Kind.VIEW:
            self._ended.add(call)  # once and for all: whoever is gone does not come back
        return fate

    async def _transit(self) -> None:
        await asyncio.sleep(self._dice.choice((0.0, self._dice.uniform(0, 0.004), self._dice.uniform(0, 0.03))))
