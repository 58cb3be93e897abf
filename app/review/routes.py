"""The routes of the Review tab: sets and their answers as JSON, masked pairs, judgements, figures,
files, sets in the making. They know no session: whoever has the address reads, whoever has the
review key writes here, and everybody else's judgements stay in the browser.

Refusals are one sentence. Knows no gradio.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from app.engines.engines import UnavailableError
from app.engines.limits import RefusalError
from app.review.fair_queue import FairQueue
from app.review.library import UNSTORED, Library
from app.review.making import Making
from app.settings import AppSettings
from mars_runtime.outputs import OutputError
from mars_runtime.review.budget import BudgetError
from mars_runtime.review.judgements import JudgementError, StoreError
from mars_runtime.review.masked import SealError
from mars_runtime.review.prompts import PromptError
from mars_runtime.review.sets import SetError
from mars_runtime.serving.addresses import TrailingSlash
from mars_runtime.serving.errors import ApiError, Faults
from mars_runtime.serving.limits import (
    BlockedError,
    BodyLimit,
    KeyCheck,
    RateLimit,
    SlidingWindow,
    address_of,
    is_json,
)
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
MAX_READ, MAX_POSTED = 3000, 600
"""Requests of one address in a minute: read, and posted."""
MAX_AT_ONCE = 4
MAX_REVEALED = 2000
MINUTE = 60.0
RETRY_SECONDS = 5
NOT_STORED = {"cache-control": "no-store"}
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
NO_ROUTE = "Nothing is served here: open the Review tab."
NO_KEY = "This is not the review key of this page."
NO_JSON = "Send one JSON object, as the page does."
OFTEN = "Many requests came from your address: wait a minute."
TOO_LARGE = "This is too large: bring less at a time."
BUSY = "Several of your requests are going: wait for one to end."
HALF = "A text holds half of a character (a lone surrogate): write it again."
Told = dict[str, Any]
log = logging.getLogger(__name__)


class Quota:
    """How often each address may do something in a minute."""

    def __init__(self, most: int) -> None:
        self._window = SlidingWindow(most, MINUTE)

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
                busy=json.dumps({"detail": BUSY}).encode(),
            ),
            Middleware(RateLimit, most=MAX_AT_ONCE, refusal=_respond(ApiError(429, BUSY))),
        ],
        exception_handlers={HTTPException: _no_route},
    )


class ReviewDesk:
    """What the routes do. Work on files, figures and bodies runs in the threads of a line."""

    def __init__(self, library: Library, making: Making, key: str) -> None:
        self._library = library
        self._making = making
        self._keys = KeyCheck(key) if key else None
        self._waiting_work = FairQueue()
        self._read, self._posted = Quota(MAX_READ), Quota(MAX_POSTED)

    async def listed(self, request: Request) -> Response:
        """The sets that everybody finds, and what can be done here."""
        is_owner, keeps = self._has_key(request), self._library.keeps and self._keys is not None
        return await self._found(
            request,
            lambda: {
                "sets": self._library.names(),
                "keeps": keeps,
                "making": self._making.told(is_owner),
            },
        )

    async def about(self, request: Request) -> Response:
        """Ways, prompts and marks of a set."""
        name = request.path_params["name"]
        return await self._work(request, lambda: _zipped(self._library.find(name).told()))

    async def item(self, request: Request) -> Response:
        """A prompt and its answers."""
        name, number = request.path_params["name"], request.path_params["item"]
        return await self._work(request, lambda: _zipped(self._library.find(name).item(number)))

    async def trace(self, request: Request) -> Response:
        """The lines of an answer's trace."""
        name, item, way = (request.path_params[each] for each in ("name", "item", "way"))
        return await self._work(
            request,
            lambda: PlainTextResponse("\n".join(self._library.find(name).trace(item, way))),
        )

    async def masked(self, request: Request) -> Response:
        """The prompts of a masked pair."""
        name, pair = request.path_params["name"], _pair(request)
        return await self._found(request, lambda: self._library.masked(name, pair))

    async def masked_item(self, request: Request) -> Response:
        """A prompt with two texts."""
        name, pair = request.path_params["name"], _pair(request)
        number = request.path_params["item"]
        return await self._found(request, lambda: self._library.masked_item(name, pair, number))

    async def sealed(self, request: Request) -> Response:
        """A visitor's set, for the browser to keep."""
        name = request.path_params["name"]
        return await self._found(request, lambda: {"sealed": self._library.sealed(name)})

    async def bring(self, request: Request) -> Response:
        """A set that a browser kept, or one that is made of what somebody brings."""
        address = address_of(request.client)

        def brought(told: Told) -> Any:
            if "sealed" in told:
                return {"name": self._library.bring(_text_of(told, "sealed"), address)}
            return self._making.bring(told, address)

        return await self._given(request, brought)

    async def make(self, request: Request) -> Response:
        """Begin to make a set."""
        is_owner, address = self._has_key(request), address_of(request.client)
        return await self._given(request, lambda told: self._making.begin(told, address, is_owner))

    async def progress(self, request: Request) -> Response:
        """How far a set in the making is."""
        self._read.take(address_of(request.client))
        return JSONResponse(self._making.progress(request.path_params["job"]))

    async def steer(self, request: Request) -> Response:
        """Pause, resume or stop it."""
        job = request.path_params["job"]
        return await self._given(request, lambda told: self._making.steer(job, told.get("do")))

    async def judgements(self, request: Request) -> Response:
        """What is kept here of a set."""
        self._check_key(request)
        name, is_masked = request.path_params["name"], "masked" in request.query_params
        return await self._found(request, lambda: {"rows": self._library.kept(name, is_masked)})

    async def judge(self, request: Request) -> Response:
        """Keep a judgement: it is on disk when this is answered."""
        self._check_key(request)
        name = request.path_params["name"]
        return await self._given(
            request, lambda told: {"row": self._library.keep(name, told.get("row"))}
        )

    async def reveal(self, request: Request) -> Response:
        """Which way stood on which side."""
        name = request.path_params["name"]

        def revealed(told: Told) -> Any:
            sealed = told.get("sealed")
            texts = sealed[:MAX_REVEALED] if isinstance(sealed, list) else []
            return {"sides": self._library.reveal(name, texts)}

        return await self._given(request, revealed)

    async def figures(self, request: Request) -> Response:
        """What the judgements of a page say together."""
        name = request.path_params["name"]
        return await self._given(
            request, lambda told: self._library.figures(name, told.get("rows"))
        )

    async def export(self, request: Request) -> Response:
        """A file of the set and a page's judgements."""
        name = request.path_params["name"]

        def exported(told: Told) -> Response:
            way = told.get("way")
            number = way if type(way) is int else 0
            form = str(told.get("form"))
            return PlainTextResponse(self._library.export(name, form, told.get("rows"), number))

        return await self._posted_work(request, exported)

    async def merge(self, request: Request) -> Response:
        """A page's judgements and those of a file, as one."""
        name = request.path_params["name"]
        return await self._given(
            request,
            lambda told: self._library.merge(name, told.get("rows"), _text_of(told, "text")),
        )

    async def _found(self, request: Request, work: Callable[[], Any]) -> Response:
        """What is read, as JSON."""
        return await self._work(request, lambda: JSONResponse(work(), headers=NOT_STORED))

    async def _given(self, request: Request, work: Callable[[Told], Any]) -> Response:
        """What becomes of a posted object, as JSON."""
        return await self._posted_work(request, lambda told: JSONResponse(work(told)))

    async def _posted_work(self, request: Request, work: Callable[[Told], Response]) -> Response:
        """The answer to what was posted. Raises ApiError."""
        self._posted.take(address_of(request.client))
        if not is_json(request.scope):
            raise ApiError(415, NO_JSON)
        body = await request.body()
        return await self._work(request, lambda: work(_object(body)))

    async def _work(self, request: Request, work: Callable[[], Response]) -> Response:
        """The response that the line's threads make. Raises ApiError with the sentence of a
        mistake."""
        address = address_of(request.client)
        if request.method == "GET":
            self._read.take(address)
        try:
            return await self._waiting_work.done(work, address, request.receive)
        except MISTAKES as error:
            raise ApiError(400, str(error)) from None
        except (BudgetError, StoreError) as error:
            raise ApiError(503, str(error), retry_after=RETRY_SECONDS) from None
        except (OutputError, OSError) as error:
            log.error("%s", error)
            raise ApiError(503, UNSTORED) from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ApiError(400, NO_JSON) from None

    def _has_key(self, request: Request) -> bool:
        """Whether the review key was sent. Raises ApiError for one that is wrong."""
        given = request.headers.get("x-review-key", "")
        if not given:
            return False
        try:
            if self._keys is None or not self._keys.is_right(given, address_of(request.client)):
                raise ApiError(401, NO_KEY)
        except BlockedError as error:
            raise ApiError(429, str(error), retry_after=error.seconds) from None
        return True

    def _check_key(self, request: Request) -> None:
        if not self._has_key(request):
            raise ApiError(401, NO_KEY)


def _object(body: bytes) -> Told:
    """A posted object, all of whose texts can be written. Raises ApiError."""
    try:
        text = body.decode()
        told = json.loads(text)
        if SURROGATE.search(text):
            json.dumps(told, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError(400, HALF) from None
    except (ValueError, RecursionError):
        raise ApiError(400, NO_JSON) from None
    if not isinstance(told, dict):
        raise ApiError(400, NO_JSON)
    return told


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
    headers = {"retry-after": str(refusal.retry_after)} if refusal.retry_after else {}
    return JSONResponse({"detail": str(refusal)}, refusal.status, headers)


async def _no_route(request: Request, error: Any) -> Response:
    return _respond(ApiError(error.status_code, NO_ROUTE))
