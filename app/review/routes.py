"""The routes of the Review tab, with JSON responses: sets, answers, masked pairs, judgements,
statistics, exports and jobs.

There are no sessions. Any client that has a set's name may read the set. Only clients with the
review key may store judgements on the server; other judgements stay in the browser. Every error is
one sentence.
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
"""Matches the paths that this module serves."""
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
"""Errors that a user can cause. Each message is one sentence."""
MAX_READ, MAX_POSTED = 3000, 600
"""Maximum number of requests per address and minute: reads, and posts."""
MAX_AT_ONCE = 4
MAX_REVEALED = 2000
MINUTE = 60.0
RETRY_SECONDS = 5
NOT_STORED = {"cache-control": "no-store"}
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
NO_ROUTE = "This address does not exist. Open the Review tab."
NO_KEY = "This review key is wrong. Ask the operator of this page for the key."
NO_JSON = "The request must be one JSON object."
OFTEN = "Too many requests came from your address. Wait a minute, then try again."
TOO_LARGE = "This request is too large. Send less at a time."
BUSY = "Too many of your requests are in progress. Wait until one of them ends."
HALF = "A text contains an incomplete character (a lone surrogate). Enter the text again."
JsonObject = dict[str, Any]
log = logging.getLogger(__name__)


class Quota:
    """Limit of requests per address and minute."""

    def __init__(self, most: int) -> None:
        self._window = SlidingWindow(most, MINUTE)

    def take(self, address: str) -> None:
        """Count a request. Raises ApiError if it exceeds the limit."""
        if not self._window.admits(address):
            raise ApiError(429, OFTEN, retry_after=round(MINUTE))


def make_review(library: Library, making: Making, settings: AppSettings) -> Starlette:
    desk = ReviewDesk(library, making, settings.review_key)
    set_path = "/review/sets/{name}"
    pair = "{first:int}-{second:int}"
    get, post = ["GET"], ["POST"]
    return Starlette(
        routes=[
            Route("/review/sets", desk.listed, methods=get),
            Route("/review/sets", desk.bring, methods=post),
            Route("/review/make", desk.make, methods=post),
            Route("/review/make/{job}", desk.progress, methods=get),
            Route("/review/make/{job}", desk.steer, methods=post),
            Route(set_path, desk.about),
            Route(f"{set_path}/items/{{item:int}}", desk.item),
            Route(f"{set_path}/items/{{item:int}}/{{method:int}}", desk.trace),
            Route(f"{set_path}/masked/{pair}", desk.masked),
            Route(f"{set_path}/masked/{pair}/{{item:int}}", desk.masked_item),
            Route(f"{set_path}/sealed", desk.sealed),
            Route(f"{set_path}/judgements", desk.judgements, methods=get),
            Route(f"{set_path}/judgements", desk.judge, methods=post),
            Route(f"{set_path}/reveal", desk.reveal, methods=post),
            Route(f"{set_path}/figures", desk.figures, methods=post),
            Route(f"{set_path}/export", desk.export, methods=post),
            Route(f"{set_path}/merge", desk.merge, methods=post),
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
    """Handlers of the Review tab's routes. Work on files, statistics and request bodies runs in the
    worker threads of a ``FairQueue``.
    """

    def __init__(self, library: Library, making: Making, key: str) -> None:
        self._library = library
        self._making = making
        self._keys = KeyCheck(key) if key else None
        self._waiting_work = FairQueue()
        self._read, self._posted = Quota(MAX_READ), Quota(MAX_POSTED)

    async def listed(self, request: Request) -> Response:
        """Return the names of the public sets, and what this client may do."""
        is_owner, keeps = self._has_key(request), self._library.keeps and self._keys is not None
        return await self._read_response(
            request,
            lambda: {
                "sets": self._library.names(),
                "keeps": keeps,
                "making": self._making.told(is_owner),
            },
        )

    async def about(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._run_in_worker(request, lambda: _zipped(self._library.find(name).told()))

    async def item(self, request: Request) -> Response:
        name, number = request.path_params["name"], request.path_params["item"]
        return await self._run_in_worker(
            request, lambda: _zipped(self._library.find(name).item(number))
        )

    async def trace(self, request: Request) -> Response:
        name, item, method = (
            request.path_params[parameter] for parameter in ("name", "item", "method")
        )
        return await self._run_in_worker(
            request,
            lambda: PlainTextResponse("\n".join(self._library.find(name).trace(item, method))),
        )

    async def masked(self, request: Request) -> Response:
        name, pair = request.path_params["name"], _pair(request)
        return await self._read_response(request, lambda: self._library.masked(name, pair))

    async def masked_item(self, request: Request) -> Response:
        name, pair = request.path_params["name"], _pair(request)
        number = request.path_params["item"]
        return await self._read_response(
            request, lambda: self._library.masked_item(name, pair, number)
        )

    async def sealed(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._read_response(request, lambda: {"sealed": self._library.sealed(name)})

    async def bring(self, request: Request) -> Response:
        """Accept an encrypted set that a browser stored, or create a set from uploaded answers."""
        address = address_of(request.client)

        def brought(posted: JsonObject) -> Any:
            if "sealed" in posted:
                return {"name": self._library.bring(_text_of(posted, "sealed"), address)}
            return self._making.bring(posted, address)

        return await self._post_response(request, brought)

    async def make(self, request: Request) -> Response:
        is_owner, address = self._has_key(request), address_of(request.client)
        return await self._post_response(
            request, lambda posted: self._making.begin(posted, address, is_owner)
        )

    async def progress(self, request: Request) -> Response:
        self._read.take(address_of(request.client))
        return JSONResponse(self._making.progress(request.path_params["job"]))

    async def steer(self, request: Request) -> Response:
        job = request.path_params["job"]
        return await self._post_response(
            request, lambda posted: self._making.steer(job, posted.get("do"))
        )

    async def judgements(self, request: Request) -> Response:
        self._check_key(request)
        name, is_masked = request.path_params["name"], "masked" in request.query_params
        return await self._read_response(
            request, lambda: {"rows": self._library.kept(name, is_masked)}
        )

    async def judge(self, request: Request) -> Response:
        """Store a judgement on disk, then respond."""
        self._check_key(request)
        name = request.path_params["name"]
        return await self._post_response(
            request, lambda posted: {"row": self._library.keep(name, posted.get("row"))}
        )

    async def reveal(self, request: Request) -> Response:
        name = request.path_params["name"]

        def revealed(posted: JsonObject) -> Any:
            sealed = posted.get("sealed")
            texts = sealed[:MAX_REVEALED] if isinstance(sealed, list) else []
            return {"sides": self._library.reveal(name, texts)}

        return await self._post_response(request, revealed)

    async def figures(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._post_response(
            request, lambda posted: self._library.figures(name, posted.get("rows"))
        )

    async def export(self, request: Request) -> Response:
        """Return a file with the set and the posted judgements."""
        name = request.path_params["name"]

        def exported(posted: JsonObject) -> Response:
            method = posted.get("way")
            number = method if type(method) is int else 0
            form = str(posted.get("form"))
            return PlainTextResponse(self._library.export(name, form, posted.get("rows"), number))

        return await self._run_on_posted(request, exported)

    async def merge(self, request: Request) -> Response:
        name = request.path_params["name"]
        return await self._post_response(
            request,
            lambda posted: self._library.merge(name, posted.get("rows"), _text_of(posted, "text")),
        )

    async def _read_response(self, request: Request, work: Callable[[], Any]) -> Response:
        return await self._run_in_worker(request, lambda: JSONResponse(work(), headers=NOT_STORED))

    async def _post_response(self, request: Request, work: Callable[[JsonObject], Any]) -> Response:
        return await self._run_on_posted(request, lambda posted: JSONResponse(work(posted)))

    async def _run_on_posted(
        self, request: Request, work: Callable[[JsonObject], Response]
    ) -> Response:
        """Run ``work`` on the posted object and return its response. Raises ApiError."""
        self._posted.take(address_of(request.client))
        if not is_json(request.scope):
            raise ApiError(415, NO_JSON)
        body = await request.body()
        return await self._run_in_worker(request, lambda: work(_object(body)))

    async def _run_in_worker(self, request: Request, work: Callable[[], Response]) -> Response:
        """Return the response that a worker thread makes. Errors that a user can cause become an
        ApiError.
        """
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
        """Whether the request has the review key. Raises ApiError if it has a wrong key."""
        sent = request.headers.get("x-review-key", "")
        if not sent:
            return False
        try:
            if self._keys is None or not self._keys.is_right(sent, address_of(request.client)):
                raise ApiError(401, NO_KEY)
        except BlockedError as error:
            raise ApiError(429, str(error), retry_after=error.seconds) from None
        return True

    def _check_key(self, request: Request) -> None:
        if not self._has_key(request):
            raise ApiError(401, NO_KEY)


def _object(body: bytes) -> JsonObject:
    """Parse the posted object, and check that all its texts can be encoded. Raises ApiError."""
    try:
        text = body.decode()
        value = json.loads(text)
        if SURROGATE.search(text):
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ApiError(400, HALF) from None
    except (ValueError, RecursionError):
        raise ApiError(400, NO_JSON) from None
    if not isinstance(value, dict):
        raise ApiError(400, NO_JSON)
    return value


def _pair(request: Request) -> tuple[int, int]:
    parameters = request.path_params
    return parameters["first"], parameters["second"]


def _text_of(posted: dict[str, Any], name: str) -> str:
    value = posted.get(name)
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
