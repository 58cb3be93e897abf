"""The HTTP routes of the endpoint: models, completions, health, metrics and documentation."""

from __future__ import annotations

import asyncio
import codecs
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic_core import from_json
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from mars_runtime.engine.engine import MAX_LANES
from mars_runtime.serving.answer import StreamedAnswer
from mars_runtime.serving.choices import Choice, Choices, Envelope, Json
from mars_runtime.serving.errors import ApiError, Faults
from mars_runtime.serving.limits import AddressCounter, BodyLimit, KeyCheck, address_of, is_json
from mars_runtime.serving.models import Models, not_ready, unknown
from mars_runtime.serving.openapi import page
from mars_runtime.serving.requests import (
    DEFAULT_CAPS,
    NO_JSON,
    AnswerBody,
    Caps,
    ChatBody,
    TextBody,
    field_error,
    make_requests,
    tidy,
)
from mars_runtime.serving.responses import ResponseEnvelope, ResponsesBody
from mars_runtime.text import Tokenizer

PATHS = re.compile(r"/v1(/.*)?|/health/?|/metrics/?|/docs/?|/openapi\.json/?")
NO_ROUTE = "This path does not exist. See /docs for all paths."
NO_METHOD = "Method not allowed. Read with GET and send requests with POST."
RATE_LIMITED = "Too many of your requests are in progress. Wait for one to end."
ONLY_JSON = "The content type must be application/json."
COMMENT = ": keep-alive\n\n"  # a server-sent event that clients ignore
NUM_READERS = 2  # number of threads that tokenize prompts


class BodyRequest(Request):
    async def json(self) -> Any:
        content = (await self.body()).removeprefix(codecs.BOM_UTF8)
        return tidy(from_json(content, allow_inf_nan=False))


class BodyRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handle_body(request: Request) -> Response:
            if request.method == "POST" and not is_json(request.scope):
                raise ApiError(415, ONLY_JSON)
            return await handle(BodyRequest(request.scope, request.receive))

        return handle_body


class TrailingSlash:
    """Ignores a slash at the end of a path. Starlette would redirect, behind a proxy with TLS to
    the wrong scheme.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].endswith("/"):
            scope = {**scope, "path": scope["path"].rstrip("/") or "/"}
        await self._app(scope, receive, send)


def make_app(
    models: Models,
    caps: Caps = DEFAULT_CAPS,
    key: str = "",
    expose: Callable[[], bytes] | None = None,
    origins: Sequence[str] = (),
    runs: AddressCounter | None = None,
) -> FastAPI:
    """key: what clients must send for routes under ``/v1``; empty for none. origins: sites that may
    call the endpoint from a browser. runs: counts the runs of each address, with the page's.
    """
    endpoint = Endpoint(models, caps, runs or AddressCounter(caps.max_runs_per_address))
    keys = KeyCheck(key)
    cors = Middleware(
        CORSMiddleware,
        allow_origins=origins,
        allow_methods=("GET", "POST", "DELETE"),
        allow_headers=["*"],
        allow_private_network=True,
        expose_headers=["retry-after"],
    )
    app = FastAPI(
        title="MARS",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        middleware=[
            # Outermost, so that scripts of other origins can read errors too. Cookies are not
            # allowed: these scripts send the key in a header.
            *([cors] if origins else []),
            Middleware(Faults, respond=attrgetter("response")),
            Middleware(TrailingSlash),
            Middleware(BodyLimit, max_bytes=caps.max_body_bytes),
        ],
        exception_handlers={HTTPException: _refuse, RequestValidationError: _refuse},
    )
    v1 = APIRouter(prefix="/v1", route_class=BodyRoute, dependencies=[Depends(keys.check)])
    v1.get("/models")(endpoint.models)
    v1.get("/models/{name:path}")(endpoint.model)
    errors: Any = {"4XX": {"description": "An error in OpenAI's format"}}
    post = partial(v1.post, responses=errors)
    post("/chat/completions")(endpoint.chat)
    post("/completions")(endpoint.complete)
    post("/responses")(endpoint.respond)
    app.include_router(v1)
    app.get("/health")(endpoint.health)
    if expose is not None:
        app.get("/metrics")(partial(_metrics, expose))
    app.get("/docs", include_in_schema=False)(lambda: HTMLResponse(page(app.openapi())))
    return app


class Endpoint:
    """The handlers of the routes. Docstrings of public methods appear in ``/docs``."""

    def __init__(self, models: Models, caps: Caps, runs: AddressCounter) -> None:
        self._models, self._caps, self._runs = models, caps, runs
        self._readers = ThreadPoolExecutor(NUM_READERS, "mars-read")

    async def models(self) -> Response:
        """List the models."""
        data = [_listed(name) for name in self._models.names]
        return JSONResponse({"object": "list", "data": data})

    async def model(self, name: str) -> Response:
        """Return one model, which need not be loaded."""
        if name not in self._models.names:
            raise unknown(self._models.names)
        return JSONResponse(_listed(name))

    async def health(self) -> Response:
        """Return 200 if a model can answer now, 503 otherwise."""
        if trouble := self._models.trouble:
            raise not_ready(trouble)
        return JSONResponse({"status": "ok"})

    async def chat(self, request: Request, body: ChatBody) -> Response:
        """Answer a conversation. The answer is one object or a stream."""
        return await self._answer(request, body)

    async def complete(self, request: Request, body: TextBody) -> Response:
        """Continue a text. The answer is one object or a stream."""
        return await self._answer(request, body)

    async def respond(self, request: Request, body: ResponsesBody) -> Response:
        """Respond to a text or a conversation. The response is sent as one object or streamed as
        events. It is not stored.
        """
        chat = body.chat()
        return await self._answer(request, chat, partial(ResponseEnvelope, body, chat))

    async def _answer(
        self,
        request: Request,
        body: AnswerBody,
        wrap: Callable[[Envelope, Choices], ResponseEnvelope] | None = None,
    ) -> Response:
        choices, chunks = await self._begin(request, body)
        envelope = wrap(chunks, choices) if wrap else chunks
        if body.stream:
            lines = kept_alive(envelope.lines(), self._caps.keep_alive_seconds)
            return ServerSentEvents(lines, choices)
        try:
            await unless_disconnected(request.receive, choices.finish())
        finally:
            choices.end()
        return JSONResponse(envelope.complete())

    async def _begin(self, request: Request, body: AnswerBody) -> tuple[Choices, Envelope]:
        model = self._models.find(body.model)
        work = partial(make_requests, body, model, self._caps)  # tokenizes, which can be slow
        by_prompt = await asyncio.get_running_loop().run_in_executor(self._readers, work)
        owner, tokenizer = address_of(request.client), model.tokenizer
        choices: list[Choice] = []
        for number, requests in enumerate(by_prompt):
            echo = _echo(body, number, tokenizer)
            for index, each in enumerate(requests):
                stops = body.stop, frozenset(body.stop_token_ids), body.settings.min_tokens
                answer = StreamedAnswer(tokenizer, *stops)
                num_prompt = 0 if index else len(each.prompt_ids)
                each = replace(each, owner=owner)
                choices.append(Choice(len(choices), each, num_prompt, answer, echo))
        at_once = self._runs.take(owner, min(len(choices), MAX_LANES))
        if not at_once:
            raise ApiError(429, RATE_LIMITED, retry_after=1)
        release = partial(self._runs.release, owner, at_once)
        group = Choices(choices, model.engine, at_once, self._caps.max_seconds, release)
        try:
            group.begin()
        except BaseException:
            group.end()
            raise
        return group, Envelope(body, tokenizer, group)


def _listed(name: str) -> Json:
    return {"id": name, "object": "model", "created": 0, "owned_by": "mars"}


def _echo(body: AnswerBody, number: int, tokenizer: Tokenizer) -> str:
    if not isinstance(body, TextBody) or not body.echo:
        return ""
    prompt = body.prompts[number]
    return prompt if isinstance(prompt, str) else tokenizer.decode(prompt)


async def _metrics(expose: Callable[[], bytes]) -> Response:
    """Return the metrics in Prometheus' text format."""
    return Response(expose(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _refuse(request: Request, error: Any) -> Response:
    if isinstance(error, RequestValidationError):
        return field_error(error).response
    sentence = {400: NO_JSON, 405: NO_METHOD}.get(error.status_code, NO_ROUTE)
    refusal = ApiError(error.status_code, sentence).response
    refusal.headers.update(error.headers or {})
    return refusal


async def kept_alive(lines: AsyncIterator[str], seconds: float) -> AsyncIterator[str]:
    while True:
        line = asyncio.ensure_future(anext(lines))
        try:
            while not (await asyncio.wait({line}, timeout=seconds))[0]:
                yield COMMENT
            yield line.result()
        except StopAsyncIteration:
            return
        finally:
            line.cancel()
            del line  # breaks the reference cycle of exception, frame and task


class ServerSentEvents(StreamingResponse):
    def __init__(self, lines: AsyncIterator[str], choices: Choices) -> None:
        headers = {"cache-control": "no-cache", "x-accel-buffering": "no"}
        super().__init__(lines, headers=headers, media_type="text/event-stream")
        self._choices = choices

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._choices.end()


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work``. If the client disconnects first, cancel it and raise ClientDisconnect."""

    async def listen() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(listen())
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        working.result()
    finally:
        working.cancel()
        leaving.cancel()
