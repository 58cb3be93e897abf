"""The HTTP routes of the endpoint: models, completions, health, metrics and documentation.

Errors are one sentence in OpenAI's format. Routes under ``/v1`` require the key if one is set.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from mars_runtime.engine.engine import MAX_LANES
from mars_runtime.engine.request import Request as EngineRequest
from mars_runtime.files.json_values import json_line
from mars_runtime.serving.addresses import TrailingSlash, cors
from mars_runtime.serving.answer import (
    Envelope,
    Json,
    Piece,
    ServerSentEvents,
    StreamedAnswer,
    pieces,
    unless_disconnected,
)
from mars_runtime.serving.choices import Choice, Choices
from mars_runtime.serving.errors import ApiError, Faults, api_error
from mars_runtime.serving.limits import (
    RESERVE_RUNS,
    BlockedError,
    BodyLimit,
    KeyCheck,
    RateLimit,
    address_of,
    is_json,
)
from mars_runtime.serving.models import Answering, Models, ServedModel, unknown
from mars_runtime.serving.openapi import document, page
from mars_runtime.serving.requests import (
    DEFAULT_CAPS,
    Caps,
    ChatBody,
    CompletionRequest,
    Kind,
    Prompt,
    TextBody,
    make_requests,
    read_completion,
)
from mars_runtime.serving.responses import ResponseEnvelope, ResponsesBody, read_request
from mars_runtime.text import Tokenizer

PATHS = re.compile(r"/v1(/.*)?|/health/?|/metrics/?|/docs/?|/openapi\.json/?")
"""Matches all paths of the endpoint, for apps that also serve other paths."""
BODIES: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": ChatBody,
    "/v1/completions": TextBody,
    "/v1/responses": ResponsesBody,
}
"""The pydantic model of the request body, by path."""
NO_ROUTE = "This path does not exist. See /docs for all paths."
NO_METHOD = "Method not allowed. Read with GET and send requests with POST."
TOO_LARGE = "The request is too large. Shorten the prompt."
RATE_LIMITED = "Too many of your requests are in progress. Wait for one to end."
NO_KEY = "The API key is missing or wrong. Send it as a bearer token."
ONLY_JSON = "The content type must be application/json."
LOADING_SECONDS = 5
NUM_READERS = 2  # number of threads that tokenize prompts
T = TypeVar("T")
Work = Callable[[Request], Awaitable[Response]]
Expose = Callable[[], bytes]
"""A function that returns the metrics in Prometheus' text format."""


def make_app(
    models: Models,
    caps: Caps = DEFAULT_CAPS,
    key: str = "",
    expose: Expose | None = None,
    origins: Sequence[str] = (),
) -> Starlette:
    """Return the ASGI app of the endpoint.

    key: the key that clients must send for routes under ``/v1``; empty for none.
    expose: returns the metrics; None for no metrics.
    origins: origins that may call the endpoint from a browser.
    """
    endpoint = Endpoint(models, caps, key)
    routes = [
        Route("/v1/models", endpoint.models),
        Route("/v1/chat/completions", partial(endpoint.complete, "chat"), methods=["POST"]),
        Route("/v1/completions", partial(endpoint.complete, "text"), methods=["POST"]),
        Route("/v1/responses", endpoint.respond, methods=["POST"]),
        Route("/v1/models/{name:path}", endpoint.model),
        Route("/health", endpoint.health),
    ]
    if expose is not None:
        routes.append(Route("/metrics", partial(_metrics, expose)))
    description = document(routes, BODIES)
    routes += [
        Route("/openapi.json", lambda request: JSONResponse(description)),
        Route("/docs", lambda request: HTMLResponse(page(description))),
    ]
    return Starlette(
        routes=routes,
        middleware=[
            *cors(origins),  # outermost, so that scripts of other origins can read errors too
            Middleware(Faults, respond=attrgetter("response")),
            Middleware(TrailingSlash),
            Middleware(
                BodyLimit,
                max_bytes=caps.max_body_bytes,
                refusal=too_large(),
                busy=json.dumps(ApiError(429, RATE_LIMITED).body).encode(),
            ),
            Middleware(
                RateLimit,
                most=caps.max_runs_per_address,
                refusal=ApiError(429, RATE_LIMITED, retry_after=1).response,
            ),
        ],
        exception_handlers={HTTPException: _no_route},
    )


class Endpoint:
    """The handlers of the routes. Docstrings of public methods appear in ``/docs``."""

    def __init__(self, models: Models, caps: Caps, key: str) -> None:
        self._models = models
        self._caps = caps
        self._keys = KeyCheck(key) if key else None
        self._readers = ThreadPoolExecutor(NUM_READERS, "mars-read")

    async def models(self, request: Request) -> Response:
        """List the models."""
        self._check_key(request)
        data = [_listed(name) for name in self._models.names]
        return JSONResponse({"object": "list", "data": data})

    async def model(self, request: Request) -> Response:
        """Return one model, which need not be loaded."""
        self._check_key(request)
        name = request.path_params["name"]
        if name not in self._models.names:
            raise unknown(self._models.names)
        return JSONResponse(_listed(name))

    async def health(self, request: Request) -> Response:
        """Return 200 if a model can answer now, 503 otherwise."""
        if trouble := self._models.trouble:
            raise ApiError(503, trouble, retry_after=LOADING_SECONDS)
        return JSONResponse({"status": "ok"})

    async def complete(self, kind: Kind, request: Request) -> Response:
        """Answer a conversation or continue a text. The answer is one object or a stream."""
        return await self._guarded(request, partial(self._answer, kind))

    async def respond(self, request: Request) -> Response:
        """Respond to a text or a conversation. The response is sent as one object or streamed as
        events. It is not stored.
        """
        return await self._guarded(request, self._respond)

    async def _guarded(self, request: Request, work: Work) -> Response:
        """Check the key and the content type, then handle the request."""
        self._check_key(request)
        if not is_json(request.scope):
            raise ApiError(415, ONLY_JSON)
        return await work(request)

    async def _answer(self, kind: Kind, request: Request) -> Response:
        completion = read_completion(kind, await request.body())
        model = self._models.find(completion.model)
        # Tokenizes the prompts, which can be slow.
        work = partial(make_requests, completion, model, self._caps)
        requests = await self._in_thread(work)
        choices = self._choices(completion, model, requests, request)
        await choices.begin()
        if completion.is_stream:
            return ServerSentEvents(_lines(choices), choices, self._caps.keep_alive_seconds)
        try:
            answer = await unless_disconnected(request.receive, choices.complete())
        finally:
            choices.cancel()
        return JSONResponse(answer)

    def _choices(
        self,
        completion: CompletionRequest,
        model: ServedModel,
        by_prompt: Sequence[Sequence[EngineRequest]],
        request: Request,
    ) -> Choices:
        """Return all requested answers. Their runs are not started yet.

        by_prompt: the engine requests for each prompt. The tokens of a prompt are counted in the
        usage of its first answer only.
        """
        tokenizer, owner = model.tokenizer, _owner(request)
        first = Envelope(completion, tokenizer, 0, by_prompt[0][0].settings)
        choices: list[Choice] = []
        for prompt, requests in zip(completion.prompts, by_prompt, strict=True):
            echo = _echo(prompt, tokenizer) if completion.has_echo else ""
            for number, answer_request in enumerate(requests):
                num_prompt_tokens = 0 if number else len(answer_request.prompt_ids)
                envelope = first.sibling(len(choices), num_prompt_tokens, answer_request.settings)
                stops = completion.stops, completion.stop_ids, completion.settings.min_tokens
                answer = StreamedAnswer(tokenizer, *stops)
                choices.append(Choice(replace(answer_request, owner=owner), envelope, answer, echo))
        at_once = 1 + _reserve_runs(request, min(len(choices), MAX_LANES) - 1)
        return Choices(choices, model.submit, at_once, self._caps.max_seconds)

    async def _respond(self, request: Request) -> Response:
        parsed = read_request(await request.body())
        chat = parsed.chat
        model = self._models.find(chat.model)
        ((run_request,),) = await self._in_thread(partial(make_requests, chat, model, self._caps))
        num_prompt_tokens = len(run_request.prompt_ids)
        completion = Envelope(chat, model.tokenizer, num_prompt_tokens, run_request.settings)
        envelope = ResponseEnvelope(parsed, completion)
        stops = chat.stops, chat.stop_ids, chat.settings.min_tokens
        answer = StreamedAnswer(model.tokenizer, *stops)
        run = await model.submit(replace(run_request, owner=_owner(request)))
        if chat.is_stream:
            events = envelope.events(run, answer)
            return ServerSentEvents(events, run, self._caps.keep_alive_seconds)
        try:
            piece = await unless_disconnected(request.receive, _whole(run, answer))
        finally:
            run.cancel()
        return JSONResponse(envelope.complete(answer, piece.text))

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run slow work in another thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._readers, work)

    def _check_key(self, request: Request) -> None:
        if self._keys is None:
            return
        scheme, _, key = request.headers.get("authorization", "").strip().partition(" ")
        key = key.strip() if scheme.lower() == "bearer" else ""
        try:
            if not key or not self._keys.is_right(key, _owner(request)):
                raise ApiError(401, NO_KEY)
        except BlockedError as error:
            raise ApiError(429, str(error), retry_after=error.seconds) from None


def _listed(name: str) -> Json:
    return {"id": name, "object": "model", "created": 0, "owned_by": "mars"}


def _owner(request: Request) -> str:
    """Return the client's address; the scheduler divides slots fairly among addresses."""
    return address_of(request.client)


def _reserve_runs(request: Request, number: int) -> int:
    """Reserve up to ``number`` additional runs for the request; return how many were reserved."""
    reserve: Callable[[int], int] = request.scope[RESERVE_RUNS]
    return reserve(number)


async def _whole(run: Answering, answer: StreamedAnswer) -> Piece:
    collected = [piece async for piece in pieces(run, answer)]
    tokens = tuple(token for piece in collected for token in piece.tokens)
    return Piece("".join(piece.text for piece in collected), tokens)


def _echo(prompt: Prompt, tokenizer: Tokenizer) -> str:
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)  # type: ignore[arg-type]


async def _lines(choices: Choices) -> AsyncIterator[str]:
    """Yield the events of a stream: its chunks, an error if a run fails, and [DONE]."""
    try:
        async for chunk in choices.chunks():
            yield _line(chunk)
    except Exception as error:
        yield _line(api_error(error).body)
    yield "data: [DONE]\n\n"


def _line(chunk: Json) -> str:
    return f"data: {json_line(chunk)}\n\n"


async def _metrics(expose: Expose, request: Request) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(expose(), media_type="text/plain; version=0.0.4; charset=utf-8")


def too_large() -> bytes:
    """Return the JSON body of the response with status 413 (request too large)."""
    return json.dumps(ApiError(413, TOO_LARGE).body).encode()


async def _no_route(request: Request, error: Any) -> Response:
    sentence = NO_METHOD if error.status_code == 405 else NO_ROUTE
    refusal = ApiError(error.status_code, sentence).response
    refusal.headers.update(error.headers or {})
    return refusal
