"""OpenAI on this machine: Chat Completions and Responses, streamed and not.

async with OpenAIServer("Hello!", Say(calls=(Call("forecast", {"city": "Oslo"}),)), Fail(429)) as server:
    os.environ |= server.env
    ...
    server.requests[0]["messages"]
"""

import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.models import openai_chat, openai_responses
from tests.models.replies import BreakOff, Fail, ProviderServer, Refused, Say, refusal, streamed


class OpenAIServer(ProviderServer):
    """OpenAI, as strict as it is."""

    _thoughts: dict[str, str]

    @property
    def env(self) -> dict[str, str]:
        """Where the SDK finds it."""
        return {"OPENAI_BASE_URL": self.url + "/v1", "OPENAI_API_KEY": self.key}

    @property
    def app(self) -> Starlette:
        """Both APIs."""
        self._thoughts = {}
        return Starlette(
            routes=[
                Route("/v1/chat/completions", self._chat, methods=["POST"]),
                Route("/v1/responses", self._responses, methods=["POST"]),
            ]
        )

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        answer = self._answer(request, body, lambda: openai_chat.check(body))
        if isinstance(answer, Response):
            return answer
        if not body.get("stream"):
            assert isinstance(answer, Say)
            return JSONResponse(openai_chat.whole(body, answer))
        return streamed(openai_chat.events(body, answer), answer, openai_chat.failed(answer))

    async def _responses(self, request: Request) -> Response:
        body = await request.json()
        answer = self._answer(request, body, lambda: openai_responses.check(body, self._thoughts))
        if isinstance(answer, Response):
            return answer
        say = answer.say if isinstance(answer, BreakOff) else answer
        self._thoughts[openai_responses.ciphertext(say)] = openai_responses.thought_id(say)
        if not body.get("stream"):
            return JSONResponse(openai_responses.whole(body, say))
        return streamed(openai_responses.events(body, answer), answer, openai_responses.failed(answer))

    def _answer(self, request: Request, body: dict[str, Any], check: Any) -> Say | BreakOff | Response:
        if request.headers.get("authorization") != f"Bearer {self.key}":
            given = request.headers.get("authorization", "").removeprefix("Bearer ")
            return _error(401, f"Incorrect API key provided: {given}.", "invalid_api_key")
        self.requests.append(json.loads(json.dumps(body)))
        try:
            check()
        except (Refused, KeyError, ValueError) as error:
            self.refusals.append(str(error))
            return _error(400, str(error), None)
        answer = self.next_answer(body)
        if isinstance(answer, Fail):
            return _error(answer.status, answer.message, answer.code, answer.headers)
        return answer


def _error(status: int, message: str, code: str | None, headers: dict[str, str] | None = None) -> Response:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return refusal(status, {"error": {"message": message, "type": kind, "param": None, "code": code}}, headers)
