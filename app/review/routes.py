"""The routes of the Review tab: sets and their answers as JSON, masked pairs, judgements, figures,
files, sets in the making. They know no session: whoever has the address reads, whoever has the
review key writes here, and everybody else's judgements stay in the browser.

Refusals are one sentence. Knows no gradio.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from app.controls import RefusalError
from app.review.library import UNSTORED, Library
from app.review.making import Making
from app.serving.engines import UnavailableError
from app.serving.settings import AppSettings
from mars_runtime.outputs import OutputError
from mars_runtime.review.judgements import JudgementError
from mars_runtime.review.masked import SealError
from mars_runtime.review.prompts import PromptError
from mars_runtime.review.sets import SetError
from mars_runtime.serving.addresses import TrailingSlash
from mars_runtime.serving.errors import ApiError, Faults
from mars_runtime.serving.limits import BodyLimit, RateLimit, Window, address_of, is_json
from mars_runtime.settings import SettingsError
from mars_runtime.trace import TraceError

PATHS = re.compile(r"/review/[\w./-]{1,200}", re.ASCII)
"""What is served here, for whoever serves other things beside it."""
MISTAKES = (
    SetError,
    SealError,
    JudgementError,
    PromptError,
    SettingsError,
    TraceError,
    RefusalError,
    UnavailableError,
)
"""What a user can cause, each with a sentence."""
MAX_READ, MAX_POSTED, MAX_GUESSED = 3000, 600, 10
"""Requests of one address in a minute: read, posted, and posted with a key that is wrong."""
MAX_AT_ONCE = 4
MAX_REVEALED = 2000
MINUTE = 60.0
NO_ROUTE = "Nothing is served here: open the Review tab."
NO_KEY = "This is not the review key of this page."
NO_JSON = "Send one JSON object, as the page does."
OFTEN = "Many requests came from your address: wait a minute."
TOO_LARGE = "This is too large: bring less at a time."
BUSY = "Several of your requests are going: wait for one to end."
T = TypeVar("T")
log = logging.getLogger(__name__)


class Quota:
    """How often each address may do something in a minute."""

    def __init__(self, most: int) -> None:
        self._window = Window(most, MINUTE)

    def take(self, address: str) -> None:
        """Count one. Raises ApiError where it is one too many."""
        if not self._window.admits(address):
            raise ApiError(429, OFTEN, retry_after=round(MINUTE))


def make_review(library: Library, making: Making, settings: AppSettings) -> Starlette:
    """An ASGI app that answers at PATHS."""
    desk = ReviewDesk(library, making, settings.review_key)
    one = "/review/sets/{name}"
    pair = "{first:int}-{second:int}"
    get, post = ["GET"], ["POST"]
    return Starlette(
        routes=[
            Route("/review/sets", desk.listed, methods=get),
            Route("/review/sets", desk.bring, methods=post),
            Route("/review/make", desk.make, methods=post),
            Route("/review/make/{job}", desk.progress, methods=get),
            Route("/review/make/{job}", desk.steer, methods=post),
            Route(one, desk.about),
            Route(f"{one}/items/{{item:int}}", desk.item),
            Route(f"{one}/items/{{item:int}}/{{way:int}}", desk.trace),
            Route(f"{one}/masked/{pair}", desk.masked),
            Route(f"{one}/masked/{pair}/{{item:int}}", desk.masked_item),
            Route(f"{one}/sealed", desk.sealed),
            Route(f"{one}/judgements", desk.judgements, methods=get),
            Route(f"{one}/judgements", desk.judge, methods=post),
            Route(f"{one}/reveal", desk.reveal, methods=post),
            Route(f"{one}/figures", desk.figures, methods=post),
            Route(f"{one}/export", desk.export, methods=post),
            Route(f"{one}/merge", desk.merge, methods=post),
        ],
        middleware=[
            Middleware(Faults, respond=_respond),
            Middleware(TrailingSlash),
            Middleware(
                BodyLimit,
                max_bytes=settings.max_review_bytes,
                refusal=json.dumps({"detail": TOO_LARGE}).encode(),
            ),
            Middleware(RateLimit, most=MAX_AT_ONCE, refusal=_respond(ApiError(429, BUSY))),
        ],
        exception_handlers={HTTPException: _no_route},
    )


class ReviewDesk:
    """What the routes do. What reads files or computes is done by threads of their own."""

    def __init__(self, library: Library, making: Making, key: str) -> None:
        self._library = library
        self._making = making
        self._key = key.encode()
        self._threads = ThreadPoolExecutor(2, "mars-review")
        self._read, self._posted = Quota(MAX_READ), Quota(MAX_POSTED)
        self._guessed = Quota(MAX_GUESSED)

    async def listed(self, request: Request) -> Response:
        """The sets that everybody finds, and what can be done here."""
        names = await self._aside(request, self._library.names)
        told = {"sets": names, "keeps": self._library.keeps and bool(self._key)}
        return JSONResponse({**told, "making": self._making.told(self._has_key(request))})

    async def about(self, request: Request) -> Response:
        """Ways, prompts and marks of a set."""
        name = request.path_params["name"]
        return _zipped(await self._aside(request, lambda: self._library.find(name).told()))

    async def item(self, request: Request) -> Response:
        """A prompt and its answers."""
        name, number = request.path_params["name"], request.path_params["item"]
        return _zipped(await self._aside(request, lambda: self._library.find(name).item(number)))

    async def trace(self, request: Request) -> Response:
        """The lines of an answer's trace."""
        given = request.path_params
        found = await self._aside(
            request, lambda: self._library.find(given["name"]).trace(given["item"], given["way"])
        )
        return PlainTextResponse("\n".join(found))

    async def masked(self, request: Request) -> Response:
        """The prompts of a masked pair."""
        name, pair = request.path_params["name"], _pair(request)
        return JSONResponse(
            await self._aside(request, lambda: self._library.masked(name, pair)),
            headers={"cache-control": "no-store"},
        )

    async def masked_item(self, request: Request) -> Response:
        """A prompt with two texts."""
        name, pair = request.path_params["name"], _pair(request)
        number = request.path_params["item"]
        return JSONResponse(
            await self._aside(request, lambda: self._library.masked_item(name, pair, number)),
            headers={"cache-control": "no-store"},
        )

    async def sealed(self, request: Request) -> Response:
        """A visitor's set, for the browser to keep."""
        name = request.path_params["name"]
        return JSONResponse(
            {"sealed": await self._aside(request, lambda: self._library.sealed(name))}
        )

    async def bring(self, request: Request) -> Response:
        """A set that a browser kept, or one that is made of what somebody brings."""
        told = await self._told(request)
        if "sealed" in told:
            text = _text_of(told, "sealed")
            name = await self._aside(request, lambda: self._library.bring(text))
            return JSONResponse({"name": name})
        return JSONResponse(await self._aside(request, lambda: self._making.bring(told)))

    async def make(self, request: Request) -> Response:
        """Begin to make a set."""
        told, is_owner = await self._told(request), self._has_key(request)
        address = address_of(request.client)
        return JSONResponse(
            await self._aside(request, lambda: self._making.begin(told, address, is_owner))
        )

    async def progress(self, request: Request) -> Response:
        """How far a set in the making is."""
        self._read.take(address_of(request.client))
        return JSONResponse(self._making.progress(request.path_params["job"]))

    async def steer(self, request: Request) -> Response:
        """Pause, resume or stop it."""
        told = await self._told(request)
        return JSONResponse(self._making.steer(request.path_params["job"], told.get("do")))

    async def judgements(self, request: Request) -> Response:
        """What is kept here of a set."""
        self._check_key(request)
        name, is_masked = request.path_params["name"], "masked" in request.query_params
        rows = await self._aside(request, lambda: self._library.kept(name, is_masked))
        return JSONResponse({"rows": rows}, headers={"cache-control": "no-store"})

    async def judge(self, request: Request) -> Response:
        """Keep a judgement: it is on disk when this is answered."""
        self._check_key(request)
        name, told = request.path_params["name"], await self._told(request)
        row = await self._aside(request, lambda: self._library.keep(name, told.get("row")))
        return JSONResponse({"row": row})

    async def reveal(self, request: Request) -> Response:
        """Which way stood on which side."""
        name, told = request.path_params["name"], await self._told(request)
        sealed = told.get("sealed")
        texts = sealed[:MAX_REVEALED] if isinstance(sealed, list) else []
        sides = await self._aside(request, lambda: self._library.reveal(name, texts))
        return JSONResponse({"sides": sides})

    async def figures(self, request: Request) -> Response:
        """What the judgements of a page say together."""
        name, told = request.path_params["name"], await self._told(request)
        return JSONResponse(
            await self._aside(request, lambda: self._library.figures(name, told.get("rows")))
        )

    async def export(self, request: Request) -> Response:
        """A file of the set and a page's judgements."""
        name, told = request.path_params["name"], await self._told(request)
        form, way = str(told.get("form")), told.get("way")
        number = way if type(way) is int else 0
        return PlainTextResponse(
            await self._aside(
                request, lambda: self._library.export(name, form, told.get("rows"), number)
            )
        )

    async def merge(self, request: Request) -> Response:
        """A page's judgements and those of a file, as one."""
        name, told = request.path_params["name"], await self._told(request)
        text = _text_of(told, "text")
        return JSONResponse(
            await self._aside(request, lambda: self._library.merge(name, told.get("rows"), text))
        )

    async def _told(self, request: Request) -> dict[str, Any]:
        """What was posted. Raises ApiError."""
        self._posted.take(address_of(request.client))
        if not is_json(request.scope):
            raise ApiError(415, NO_JSON)
        try:
            told = json.loads(await request.body())
        except (ValueError, RecursionError):
            raise ApiError(400, NO_JSON) from None
        if not isinstance(told, dict):
            raise ApiError(400, NO_JSON)
        return told

    async def _aside(self, request: Request, work: Callable[[], T]) -> T:
        """Done by another thread. Raises ApiError with the sentence of a mistake."""
        if request.method == "GET":
            self._read.take(address_of(request.client))
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except MISTAKES as error:
            raise ApiError(400, str(error)) from None
        except (OutputError, OSError) as error:
            log.error("%s", error)
            raise ApiError(503, UNSTORED) from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ApiError(400, NO_JSON) from None

    def _has_key(self, request: Request) -> bool:
        """Whether the review key was sent. Raises ApiError for one that is wrong."""
        given = request.headers.get("x-review-key", "").encode("latin-1")
        if not given:
            return False
        if not self._key or not hmac.compare_digest(given, self._key):
            self._guessed.take(address_of(request.client))
            raise ApiError(401, NO_KEY)
        return True

    def _check_key(self, request: Request) -> None:
        if not self._has_key(request):
            raise ApiError(401, NO_KEY)


def _pair(request: Request) -> tuple[int, int]:
    given = request.path_params
    return given["first"], given["second"]


def _text_of(told: dict[str, Any], name: str) -> str:
    value = told.get(name)
    if not isinstance(value, str):
        raise ApiError(400, NO_JSON)
    return value


def _zipped(body: bytes) -> Response:
    headers = {"content-encoding": "gzip", "cache-control": "no-store"}
    return Response(body, media_type="application/json", headers=headers)


def _respond(refusal: ApiError) -> Response:
    return JSONResponse({"detail": str(refusal)}, refusal.status)


async def _no_route(request: Request, error: Any) -> Response:
    return _respond(ApiError(error.status_code, NO_ROUTE))
