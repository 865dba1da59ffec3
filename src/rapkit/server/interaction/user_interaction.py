"""Ask the user of a call for a choice, or for an OAuth authorisation."""

import asyncio
import json
import logging
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal

from rapkit.errors import ConfigError, ToolError, WrongKey
from rapkit.mailbox import Commit, Fact, NewBox
from rapkit.protocol import OAuthRequest, UserChoice, dump
from rapkit.server.interaction.oauth import OAuth, OAuthProvider
from rapkit.server.interaction.oauth.errors import ProviderUnavailable
from rapkit.server.interaction.oauth.flow import Waiter
from rapkit.server.interaction.questions import REMEMBERED, NewQuestion, Questions, answer_mail, question_post
from rapkit.server.interaction.user_box import user_box
from rapkit.server.invocation import StoredCall, digest
from rapkit.server.resources.thread_resources import thread_box
from rapkit.work.store_retry import retry_store_operation

if TYPE_CHECKING:
    from rapkit.server.claimed_box import ClaimedBox
    from rapkit.server.services import ToolsetServices

Remember = Literal["thread", "user"]

ANSWER_PATH = "/answer/"
ANSWER_PURPOSE = "answer"

log = logging.getLogger("rapkit.calls")


class TooLateToAsk(ToolError):
    """A question of a subscription whose call was answered already."""

    def __init__(self) -> None:
        super().__init__(
            "a subscription that is confirmed cannot ask the user. Its author can have it ask before its first checkpoint or event, and "
            "declare it with confirm_after=None if it works for longer than a second before that."
        )


class UserInteraction:
    """Asks the user of one call."""

    def __init__(
        self, services: "ToolsetServices", claimed_box: "ClaimedBox", call: StoredCall, tool: str, questions: Questions
    ) -> None:
        self._services = services
        self._claimed_box = claimed_box
        self._call = call
        self._tool = tool
        self._questions = questions
        self._loop = asyncio.get_running_loop()

    async def choose(
        self,
        prompt: str,
        choices: Sequence[str],
        default: str | None,
        remember: Remember | None,
        expires_in: float | None,
    ) -> str:
        """The label the user chose."""
        self._check_loop()
        labels = _checked(choices)
        if default is not None and default not in labels:
            raise ValueError(f"The default {default!r} is none of the choices: {', '.join(map(repr, labels))}.")
        if remember not in (None, "thread", "user"):
            raise ValueError(f"remember is 'thread' or 'user', not {remember!r}.")
        within = self._services.config.durations.answer if expires_in is None else expires_in
        if not 0 < within < math.inf:
            raise ValueError(f"expires_in is a number of seconds above 0, not {expires_in}.")
        memory = digest("r", json.dumps([self._tool, prompt, labels]))
        key = self._questions.key("choice", prompt, *labels)
        if remember and not await self._questions.was_asked(key):
            known = await self._remembered(remember, memory)
            if known is not None:
                return known

        async def ask() -> NewQuestion:
            token = self._services.signer.sign(ANSWER_PURPOSE, self._claimed_box.claim.box.id, key)
            question = UserChoice(
                group_id=self._call.message.group_id,
                id=self._call.message.id,
                call_id=self._call.message.call_id,
                prompt=prompt,
                choices=tuple(labels),
                default=0 if default is None else labels.index(default),
                response_url=f"{self._call.base_url}{ANSWER_PATH}{token}",
            )
            return NewQuestion([question_post(self._claimed_box, dump(question), key)])

        question = await self._questions.answer(key, labels, within, ask)
        if question.error is not None or question.answer is None:
            raise ToolError(f"{prompt!r}: {question.error}")
        label = labels[question.answer]
        if remember:
            await self._keep(remember, memory, label)
        return label

    async def oauth(self, provider: str, refused: str | None) -> str:
        """An access token of the user's, which the provider has not refused yet as far as we know."""
        self._check_loop()
        oauth = self._services.oauth
        declared = _declared(oauth, provider)
        user = user_box(self._call)
        while True:
            key = self._questions.key("oauth", provider)
            # A question that failed fails in every run, though a token may have come since: the handler went on without one.
            failed = await self._questions.has_failed(key)
            token = None if failed else await _usable(oauth, user, declared, refused)
            if token is not None:
                await self._questions.withdraw(key)
                return token
            ask = partial(self._ask_for_consent, provider, user, key)
            question = await self._questions.answer(key, (), self._services.config.durations.authorise, ask)
            if question.error is not None:
                await oauth.vault.drop_waiter(user.id, provider, Waiter(self._claimed_box.claim.box.id, key))
                raise ToolError(f"{provider}: {question.error}")
            refused = None  # what was refused was the token from before

    def _check_loop(self) -> None:
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("A plain function cannot wait for people. Define the tool with `async def`.")

    async def _ask_for_consent(self, provider: str, user: NewBox, key: str) -> NewQuestion:
        call = self._call
        oauth = self._services.oauth
        box = self._claimed_box.claim.box.id
        flow = oauth.begin(provider, user.id, call.base_url, box, key)
        message = OAuthRequest(
            group_id=call.message.group_id, id=call.message.id, call_id=call.message.call_id, auth_url=flow.auth_url
        )
        # Before the question: who is woken without having asked does not mind.
        await retry_store_operation(lambda: self._services.store.note(user, flow.waiter))

        async def look_again() -> None:
            # Another call's consent may have come after we looked, and before this call could be woken.
            if await oauth.vault.usable(user.id, oauth.providers[provider]) is not None:
                await self._services.store.accept(answer_mail(box, key))

        return NewQuestion([question_post(self._claimed_box, dump(message), key)], [flow.record], look_again)

    async def _remembered(self, where: Remember, key: str) -> str | None:
        records = await retry_store_operation(lambda: self._services.store.records(self._memory(where).id, REMEMBERED))
        return next((json.loads(record.body) for record in records if record.key == key), None)

    async def _keep(self, where: Remember, key: str, label: str) -> None:
        box = self._memory(where)
        fact = Fact(box.id, REMEMBERED, key, json.dumps(label).encode())
        if where == "user":
            await retry_store_operation(lambda: self._services.store.note(box, fact))
        else:
            await self._claimed_box.commit_with_retry(Commit(spawn=[box], facts=[fact], keep=True, charge=True))

    def _memory(self, where: Remember) -> NewBox:
        return thread_box(self._call) if where == "thread" else user_box(self._call)


class InteractionUntilConfirmed:
    """Asks the user of a subscribing call, until the subscription is confirmed and the call thereby answered."""

    def __init__(
        self, interaction: UserInteraction, consent: "StoredConsent", is_confirmed: Callable[[], bool]
    ) -> None:
        self._interaction = interaction
        self._consent = consent
        self._is_confirmed = is_confirmed

    async def choose(
        self,
        prompt: str,
        choices: Sequence[str],
        default: str | None,
        remember: Remember | None,
        expires_in: float | None,
    ) -> str:
        """The label the user chose; `ToolError` if it is too late to ask."""
        if self._is_confirmed():
            return await self._consent.choose()
        return await self._interaction.choose(prompt, choices, default, remember, expires_in)

    async def oauth(self, provider: str, refused: str | None) -> str:
        """An access token of the user's; `ToolError` if it is too late to ask for one."""
        asking: UserInteraction | StoredConsent = self._consent if self._is_confirmed() else self._interaction
        return await asking.oauth(provider, refused)


class StoredConsent:
    """The interaction of a running subscription: its call is answered, so the user cannot be asked any more."""

    def __init__(self, services: "ToolsetServices", call: StoredCall) -> None:
        self._services = services
        self._user = user_box(call)

    async def choose(self, *_: object) -> str:
        """Refuse."""
        raise TooLateToAsk

    async def oauth(self, provider: str, refused: str | None) -> str:
        """The token there is; `ToolError` if the user would have to authorise us."""
        oauth = self._services.oauth
        try:
            token = await _usable(oauth, self._user, _declared(oauth, provider), refused)
        except ProviderUnavailable as error:
            # Not the end of the subscription: it starts again, and perhaps the provider is there by then.
            raise RuntimeError(str(error)) from error
        if token is None:
            raise ToolError(f"the user has to authorise {provider} (again). Subscribe again to ask them.")
        return token


async def _usable(oauth: OAuth, user: NewBox, provider: OAuthProvider, refused: str | None) -> str | None:
    try:
        return await retry_store_operation(lambda: oauth.vault.usable(user.id, provider, refused=refused))
    except WrongKey:
        # Sealed with a key that was taken away: as good as none, and replaced by the next one.
        log.error("a user's token for %s cannot be opened, so they are asked again", provider.name)
        return None


def _declared(oauth: OAuth, name: str) -> OAuthProvider:
    if name not in oauth.providers:
        known = ", ".join(sorted(oauth.providers)) or "none"
        raise ConfigError(f"There is no OAuth provider {name!r}. Declared with Toolset(oauth=[...]): {known}.")
    return oauth.providers[name]


def _checked(choices: Sequence[str]) -> list[str]:
    labels = list(choices)
    if isinstance(choices, str) or not labels or not all(label for label in labels):
        raise ValueError("choices is a list of at least one text.")
    if len(set(labels)) < len(labels):
        raise ValueError("Two choices are the same.")
    return labels
