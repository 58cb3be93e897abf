"""What the Review tab's routes answer: sets and masked pairs, judgements, files, imports; and the
line of work before them. No browser and no weights.
"""

from __future__ import annotations

import asyncio
import csv
import io
import json
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import sample_traces as samples
from review_page import EVIL, KEY, row, write_set
from scripted_page import ScriptedBackend, make_handlers
from starlette.requests import ClientDisconnect
from starlette.testclient import TestClient

from app.engines.engines import UNLISTED
from app.review import fair_queue
from app.review.fair_queue import FairQueue
from app.review.library import NO_FORMAT, OTHER_PROMPT, Library
from app.review.making import Making
from app.review.routes import make_review
from app.settings import AppSettings
from mars_runtime.review import budget, exports
from mars_runtime.review.budget import BudgetError
from mars_runtime.review.judgements import current
from mars_runtime.review.prompts import Item
from mars_runtime.review.sets import ReviewSet
from mars_runtime.serving.errors import ApiError
from mars_runtime.settings import DecodeSettings

HEADERS = {"x-review-key": KEY}
SMALL = "/review/sets/small"
NUM_ITEMS = 8


def write_small(data: Path) -> ReviewSet:
    """Eight prompts by three ways; of the last prompt all answers are the same."""

    def answer(number: int, way: int) -> str:
        return "all the same" if number == NUM_ITEMS - 1 else f"{EVIL} one {way * 'and '}two"

    items = [Item(f"p{n}", f"{EVIL} {n}", category="ab"[n % 2]) for n in range(NUM_ITEMS)]
    return write_set(data / "review" / "small", ["ar", "tau=0", "tau=0.5"], items, answer)


@pytest.fixture
def review(tmp_path: Path) -> ReviewSet:
    return write_small(tmp_path)


def client_over(data: str, key: str = KEY) -> TestClient:
    engines: Any = SimpleNamespace(entries={"tiny": None}, default="tiny", settings=AppSettings())
    library = Library(data)
    app = make_review(library, Making(engines, library), AppSettings(data=data, review_key=key))
    return TestClient(app)


@pytest.fixture
def client(review: ReviewSet, tmp_path: Path) -> TestClient:
    return client_over(str(tmp_path))


def test_the_study_and_the_owners_sets_open(client: TestClient) -> None:
    body = client.get("/review/sets").json()
    assert body["sets"] == ["study", "small"]
    assert (body["keeps"], body["making"]["prompts"], body["making"]["ways"]) == (True, 20, 3)
    about = client.get("/review/sets/study").json()
    assert (len(about["items"]), len(about["ways"])) == (100, 5)
    assert about["items"][0]["marks"][0]["is_same"] is True
    item = client.get("/review/sets/study/items/0").json()
    assert "".join(item["answers"][2]["pieces"]) == item["answers"][2]["text"]
    trace = client.get("/review/sets/study/items/0/2").text.split("\n")
    assert json.loads(trace[0])["settings"]["tau"] == 0.8
    assert client.get(f"{SMALL}/items/0/1").text == ""
    client.follow_redirects = False
    for path in ("/review/sets", "/review/sets/study"):
        assert client.get(f"{path}/").json() == client.get(path).json()


@pytest.mark.parametrize("seed", range(2))
def test_nothing_tells_a_side_before_the_reveal(tmp_path: Path, seed: int) -> None:
    """With the ways exchanged the page receives the same, except for which text is on the left."""
    review = write_small(tmp_path)
    secret = random.Random(seed).randbytes(32)
    (tmp_path / "review" / "review.secret").write_bytes(secret)
    client = client_over(str(tmp_path))
    for item in client.get(f"{SMALL}/masked/0-1").json()["items"]:
        assert item.keys() == {"id", "category", "head", "same"}
    is_ar_left, seals = [], []
    for number in range(NUM_ITEMS - 1):
        shown, swapped = (
            client.get(f"{SMALL}/masked/{pair}/{number}").json() for pair in ("0-1", "1-0")
        )
        seals.append(shown.pop("sealed"))
        assert seals[-1] != swapped.pop("sealed")
        assert shown == swapped
        assert shown.keys() == {
            *("id", "prompt", "system", "category", "turns", "reference", "left", "right"),
        }
        texts = [review.answer(number, way).text for way in (0, 1)]  # type: ignore[union-attr]
        assert sorted((shown["left"], shown["right"])) == sorted(texts)
        rest = json.dumps({**shown, "left": "", "right": ""})
        assert "tau" not in rest
        assert '"ar"' not in rest
        is_ar_left.append(shown["left"] == texts[0])
    assert len(set(map(len, seals))) == 1  # the length of a name shows nowhere
    sides = client.post(f"{SMALL}/reveal", json={"sealed": seals}).json()["sides"]
    assert [side["left"] == "ar" for side in sides] == is_ar_left
    if seed == 0:
        assert len(set(is_ar_left)) == 2


def test_a_masked_judgement_is_stored_with_its_sides_and_returned_without(
    client: TestClient,
) -> None:
    body = client.get(f"{SMALL}/masked/0-1/0").json()
    posted = row(0, sealed=body["sealed"], is_masked=True)
    del posted["left"], posted["right"]
    answer = client.post(f"{SMALL}/judgements", json={"row": posted}, headers=HEADERS)
    assert answer.status_code == 200
    assert not {"left", "right"} & answer.json()["row"].keys()
    masked = client.get(f"{SMALL}/judgements?masked", headers=HEADERS).json()["rows"]
    assert not {"left", "right"} & masked[0].keys()
    assert masked[0]["pair"] == ["ar", "tau=0"]
    open_ = client.get(f"{SMALL}/judgements", headers=HEADERS).json()["rows"]
    again = client.post(
        f"{SMALL}/reveal", json={"sealed": [masked[0]["sealed"], body["sealed"]]}
    ).json()["sides"]
    assert again[0] == again[1] == {side: open_[0][side] for side in ("left", "right")}
    other = {**posted, "item": "p1"}
    answer = client.post(f"{SMALL}/judgements", json={"row": other}, headers=HEADERS)
    assert answer.json()["detail"] == OTHER_PROMPT
    forged = {**posted, "sealed": body["sealed"][:-4] + "AAAA"}
    answer = client.post(f"{SMALL}/judgements", json={"row": forged}, headers=HEADERS)
    assert answer.status_code == 400


def test_only_who_has_the_key_writes(client: TestClient) -> None:
    path = f"{SMALL}/judgements"
    assert client.post(path, json={"row": row(0)}).status_code == 401
    assert client.get(path).status_code == 401
    nowhere = client_over("", key="")
    assert nowhere.get("/review/sets").json()["keeps"] is False
    path = "/review/sets/study/judgements"
    assert nowhere.post(path, json={"row": row(0)}, headers=HEADERS).status_code == 401


def test_figures_and_files_are_those_of_the_command(client: TestClient, review: ReviewSet) -> None:
    rows = [row(n, name) for n in range(6) for name in ("anna", "ben")]
    body = client.post(f"{SMALL}/figures", json={"rows": rows}).json()
    [first] = [preference for preference in body["preferences"] if preference["way"] == "tau=0"]
    assert (first["num_prompts"], first["num_judgements"], first["num_identical"]) == (6, 12, 1)
    assert body["agreement"]["num_shared"] == 6
    assert "far too few" in body["caution"]
    texts = {}
    for form in ("csv", "jsonl", "html", "comparator"):
        posted = {"form": form, "rows": rows, "way": 1}
        answer = client.post(f"{SMALL}/export", json=posted)
        assert answer.status_code == 200, answer.text
        texts[form] = answer.text
    table = list(csv.DictReader(io.StringIO(texts["csv"], newline="")))
    assert (len(table), table[0]["preferred"]) == (12, "ar")
    assert len(current(exports.read_jsonl(texts["jsonl"], review.id))) == 12
    answer = client.post(f"{SMALL}/export", json={"form": "exe", "rows": []})
    assert answer.json()["detail"] == NO_FORMAT


def test_samples_of_lm_eval_open_as_a_set(client: TestClient) -> None:
    """One JSON object a line, or an array of them as earlier releases wrote it."""

    def sample(prompt: str, answer: str) -> str:
        arguments = {"gen_args_0": {"arg_0": prompt, "arg_1": {}}}
        return json.dumps({"doc_id": 0, "arguments": arguments, "resps": [[answer]]})

    array = json.dumps([{"arguments": [["two", {}]], "resps": [["II"]]}], indent=2)
    for bold in (sample("two", "II"), array):
        files = [
            {"name": "ar", "text": "\n".join([sample("one", "1"), sample("two", "2")])},
            {"name": "bold", "text": bold},
        ]
        answer = client.post("/review/sets", json={"samples": files, "name": "gsm8k"})
        name = answer.json()["name"]
        about = client.get(f"/review/sets/{name}").json()
        assert (about["name"], [way["name"] for way in about["ways"]]) == ("gsm8k", ["ar", "bold"])
        item = client.get(f"/review/sets/{name}/items/0").json()
        assert [entry["text"] for entry in item["answers"]] == ["2", "II"]
    files[1]["text"] = "\n{}"
    answer = client.post("/review/sets", json={"samples": files})
    assert answer.json()["detail"].startswith("bold, line 2 is not an lm_eval sample")


def test_pinned_runs_open_as_a_set(client: TestClient) -> None:
    scripts = [
        samples.Script(samples.PROSE, DecodeSettings(tau=0.95, block_size=8)),
        samples.Script(samples.PROSE, DecodeSettings(method="ar")),
    ]
    pins = ["\n".join(samples.run(script).lines()) for script in scripts]
    name = client.post("/review/sets", json={"pins": pins, "name": "pins"}).json()["name"]
    about = client.get(f"/review/sets/{name}").json()
    assert len(about["items"]) == 1
    assert [way["name"].split(",")[0] for way in about["ways"]] == ["tau=0.95", "ar"]
    assert client.get(f"/review/sets/{name}/items/0").json()["answers"][0]["pieces"]
    assert client.get(f"/review/sets/{name}/items/0/0").text.split("\n") == pins[0].split("\n")
    answer = client.post("/review/sets", json={"pins": [pins[0], "{"]})
    assert answer.status_code == 400
    assert answer.json()["detail"].endswith(".")


@pytest.fixture
def made(tmp_path: Path) -> Iterator[TestClient]:
    """Its engine writes a scripted text."""
    handlers = make_handlers(tmp_path, ScriptedBackend("A scripted answer. " * 20), port=0)
    yield TestClient(make_review(handlers.library, handlers.making, handlers.engines.settings))
    handlers.engines.close()


def test_a_set_is_made_paused_and_resumed(made: TestClient) -> None:
    body = {
        "prompts": 'prompt\none\n"two\nthree"\n',
        "file": "x.csv",
        "ways": ["ar", "tau=0,B=4"],
        "max_new_tokens": 16,
        "name": "mine",
    }
    name = made.post("/review/make", json=body).json()["name"]
    made.post(f"/review/make/{name}", json={"do": "pause"})
    made.post(f"/review/make/{name}", json={"do": "resume"})
    until = time.monotonic() + 60
    while (progress := made.get(f"/review/make/{name}").json())["state"] == "making":
        assert time.monotonic() < until
    assert (progress["state"], progress["num_done"], progress["num_all"], progress["refused"]) == (
        "done",
        4,
        4,
        [],
    )
    about = made.get(f"/review/sets/{name}").json()
    assert [way["name"] for way in about["ways"]] == ["ar", "tau=0,B=4"]
    assert made.get(f"/review/sets/{name}/items/1/1").text.startswith('{"type":"header"')


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompts": "\n".join(map(str, range(21)))}, "at most 20 prompts"),
        ({"ways": ["ar"]}, "2 to 3 methods"),
        ({"ways": ["ar", "fast"]}, "'fast' is not a method"),
        ({"ways": ["ar", "tau=0.8,B=auto"]}, "Choose a number for B"),
        ({"ways": ["ar", "tau=0,checkpoint=other"]}, UNLISTED),
        ({"max_new_tokens": 100_000}, "token limits"),
    ],
)
def test_what_cannot_be_made_is_refused(
    made: TestClient, changes: dict[str, Any], said: str
) -> None:
    body = {"prompts": "one", "ways": ["ar", "tau=0,B=4"], **changes}
    answer = made.post("/review/make", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]


def run(work: Coroutine[Any, Any, None]) -> None:
    """Run to the end in another thread: the browser of other tests may hold this one's loop."""
    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, work).result()


async def stays() -> Any:
    """Wait for the answer."""
    await asyncio.sleep(3600)


async def leaves() -> dict[str, str]:
    return {"type": "http.disconnect"}


def endless() -> None:
    while True:
        budget.check()


def test_an_address_that_fills_its_line_delays_no_other() -> None:
    """What waits there is dropped once its client leaves."""
    held, begun, done = threading.Event(), threading.Event(), list[str]()

    def hold() -> None:
        begun.set()
        held.wait(60)

    async def attack() -> None:
        line = FairQueue()
        tasks = [asyncio.ensure_future(line.done(hold, "many", stays))]
        await asyncio.sleep(0)
        await asyncio.to_thread(begun.wait, 30)
        with pytest.raises(ClientDisconnect):
            await line.done(lambda: done.append("left"), "many", leaves)
        for _ in range(fair_queue.MAX_OF_ONE):
            tasks.append(asyncio.ensure_future(line.done(hold, "many", stays)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(ApiError, match=fair_queue.FULL) as refused:
            await line.done(held.wait, "many", stays)
        assert (refused.value.status, refused.value.retry_after) == (429, 1)
        assert await asyncio.wait_for(line.done(lambda: "served", "one", stays), 30) == "served"
        held.set()
        await asyncio.gather(*tasks)

    run(attack())
    assert done == []


@pytest.mark.parametrize(
    ("client", "error"), [(leaves, ClientDisconnect), (stays, BudgetError)], ids=["leaves", "stays"]
)
def test_work_ends_when_its_client_leaves_or_its_seconds_are_over(
    monkeypatch: pytest.MonkeyPatch, client: Callable[[], Any], error: type[Exception]
) -> None:
    monkeypatch.setattr(fair_queue, "MAX_SECONDS", 0.05 if client is stays else 600)
    ended, begun = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        try:
            endless()
        finally:
            ended.set()

    async def receive() -> Any:
        await asyncio.to_thread(begun.wait, 30)
        return await client()

    async def ask() -> None:
        with pytest.raises(error):
            await FairQueue().done(work, "one", receive)

    run(ask())
    assert ended.wait(30)
