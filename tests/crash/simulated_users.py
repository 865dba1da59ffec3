"""The people behind the calls: they are asked, and answer at once, late, twice, wrongly, or only when all else is over."""

import asyncio
import json
import random
import time
from dataclasses import dataclass, field, replace
from urllib.parse import parse_qs, urlsplit

from pyreqwest.exceptions import PyreqwestError

from tests.crash.call_log import CallLog
from tests.crash.consents import declines
from tests.crash.dialogues import CHOICES
from tests.crash.history import Answer, Call, Consent, Delivery
from tests.crash.provider import Provider
from tests.server.interaction.oauth.browser import Browser

_MIX = {"ask": 3, "ask_twice": 3, "ask_again": 1, "act": 3, "act_again": 2, "hold": 2, "watch": 1}
_CALLS_PER_USER = 3
_NO_SUCH_CHOICE = 7


@dataclass
class SimulatedUsers:
    """Have calls made for them, and do what these ask of them."""

    ledger: CallLog
    random: random.Random
    provider: Provider
    answers: list[Answer] = field(default_factory=list)
    _consents: list[Consent] = field(default_factory=list)
    _met: set[str] = field(default_factory=set)
    _acting: list["asyncio.Task[None]"] = field(default_factory=list)
    _stopped: bool = False
    _all_over: asyncio.Event = field(default_factory=asyncio.Event)
    _users: int = 0

    async def run(self, callers: int, pause: float) -> None:
        """Call until stopped."""
        await asyncio.gather(*(self._caller(pause) for _ in range(callers)))

    def stop(self) -> None:
        self._stopped = True

    async def come_to_an_end(self) -> None:
        """What was left open is answered, what never ends by itself is cancelled."""
        self._all_over.set()
        endless = [each.call for each in self.ledger.sent.values() if each.call.tool in ("hold", "watch")]
        await asyncio.gather(*(self.ledger.cancel(call) for call in endless))

    async def leave(self) -> None:
        """Let them finish what they are at. What went wrong for one of them is raised here."""
        await asyncio.gather(*self._acting)

    async def give_up(self) -> None:
        """Stop them where they stand."""
        for task in self._acting:
            task.cancel()
        await asyncio.gather(*self._acting, return_exceptions=True)

    @property
    def consents(self) -> list[Consent]:
        """What they did at the provider, and what became of it there."""
        presented, used = self.provider.presented, self.provider.used
        return [
            each
            if each.code is None
            else replace(each, exchanged=tuple(presented.get(each.code, ())), used=used.get(each.code))
            for each in self._consents
        ]

    async def _caller(self, pause: float) -> None:
        while not self._stopped:
            tool = self.random.choices(list(_MIX), list(_MIX.values()))[0]
            user = None
            if tool.startswith("act"):
                user = f"user_{self._users // _CALLS_PER_USER}"
                self._users += 1
            await self.ledger.send(self.ledger.make(tool, self.random.uniform(0, 0.1), user))
            await asyncio.sleep(self.random.uniform(0, 2 * pause))

    def meet(self, delivery: Delivery) -> None:
        """Look at what came; a question or a link that is new is seen to."""
        if delivery.id in self._met or delivery.path.startswith("/mark/"):
            return
        self._met.add(delivery.id)
        if delivery.type == "user_choice":
            self._acting.append(asyncio.create_task(self._choose(delivery)))
        elif delivery.type == "oauth":
            self._acting.append(asyncio.create_task(self._authorise(delivery)))

    async def _choose(self, question: Delivery) -> None:
        call = self._call(question)
        number = int(question.message["prompt"].split()[1])
        await self._hesitate()
        wrong = self.random.random() < 0.1
        selected = _NO_SUCH_CHOICE if wrong else self.random.randrange(len(CHOICES))
        await self._answer(question, Answer(call.n, number, selected, time.monotonic()))
        if self.random.random() < 0.3:
            await self._hesitate()
            other = self.random.randrange(len(CHOICES))
            await self._answer(question, Answer(call.n, number, other, time.monotonic(), first=False))

    async def _answer(self, question: Delivery, answer: Answer) -> None:
        place = len(self.answers)
        self.answers.append(answer)
        path = urlsplit(question.message["response_url"]).path
        body = json.dumps({"id": question.message["id"], "selected": answer.selected}).encode()
        statuses = await self.ledger.door.insist(lambda: self.ledger.door.post(path, body))
        self.answers[place] = replace(answer, statuses=statuses)

    async def _authorise(self, request: Delivery) -> None:
        call = self._call(request)
        assert call.user_id is not None
        await self._hesitate()
        browser = Browser(call.user_id)
        consent = Consent(call.n, time.monotonic(), call.user_id)
        place = len(self._consents)
        self._consents.append(consent)
        back = await browser.decide(request.message["auth_url"], allow=not declines(call.user_id))
        code = parse_qs(urlsplit(back).query).get("code", [None])[0]
        consent = self._consents[place] = replace(consent, code=code)
        page = await self._come_back(browser, back)
        self._consents[place] = replace(consent, page=page)

    async def _come_back(self, browser: Browser, url: str) -> int:
        """Follow the provider's redirect, and load the page again as long as there is none, or it says so."""
        path = urlsplit(url).path
        while True:
            self.ledger.door.spring(path, "sent")
            try:
                page = await browser.get(url)
            except PyreqwestError:
                page = None
            if page is not None and page.status != 503:
                return page.status
            await asyncio.sleep(self.random.uniform(0.05, 0.3))

    async def _hesitate(self) -> None:
        chance = self.random.random()
        if chance < 0.15:
            await self._all_over.wait()
        elif chance < 0.8:
            await asyncio.sleep(self.random.uniform(0, 1.5))

    def _call(self, message: Delivery) -> Call:
        return self.ledger.sent[int(message.path.removeprefix("/cb/"))].call
