"""What the Review tab's routes answer: sets and masked pairs, judgements that outlive the server,
files, imports from anybody. No browser and no weights.
"""

from __future__ import annotations

import csv
import io
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
import sample_traces as samples
from scripted_page import ScriptedBackend, make_handlers
from starlette.testclient import TestClient

from app.handlers import Handlers
from app.review.library import Library
from app.review.making import Making
from app.review.routes import Quota, make_review
from app.settings import AppSettings
from app.ui import imported_runs
from mars_runtime.review import exports
from mars_runtime.review.judgements import current
from mars_runtime.review.prompts import Item
from mars_runtime.review.sets import About, ReviewSet
from mars_runtime.review.ways import read_ways
from mars_runtime.serving.errors import ApiError
from mars_runtime.settings import DecodeSettings

ROOT = Path(__file__).parents[2]
KEY = {"x-review-key": "the key of a test"}
NUM_ITEMS = 8
EVIL = '<img src=x onerror="alert(1)">'


def write_set(folder: Path) -> ReviewSet:
    """Eight prompts by three ways; of the last prompt all answers are the same."""
    about = About("small", read_ways(["ar", "tau=0", "tau=0.5"], "tiny"), 0, {})
    items = [Item(f"p{n}", f"{EVIL} {n}", category="ab"[n % 2]) for n in range(NUM_ITEMS)]
    made = ReviewSet.create(folder, about, items)
    for number in range(NUM_ITEMS):
        for way in range(3):
            text = "all the same" if number == NUM_ITEMS - 1 else f"{EVIL} one {way * 'and '}two"
            made.add_text(number, way, text)
    made.summarize()
    return made


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write_set(tmp_path / "review" / "small")
    return tmp_path


def client_over(data: str, key: str = "the key of a test") -> TestClient:
    engines: Any = SimpleNamespace(entries={"tiny": None}, default="tiny", settings=AppSettings())
    library = Library(data)
    app = make_review(library, Making(engines, library), AppSettings(data=data, review_key=key))
    return TestClient(app)


@pytest.fixture
def client(data: Path) -> TestClient:
    return client_over(str(data))


def row(number: int, reviewer: str = "anna", **changes: Any) -> dict[str, Any]:
    return {
        "id": f"{reviewer}-{number}",
        "reviewer": reviewer,
        "item": f"p{number}",
        "left": "ar",
        "right": "tau=0",
        "preference": "left",
        "ratings": [4, 2],
        "tags": [[], ["cut off"]],
        "note": EVIL,
        **changes,
    }


def test_the_study_and_the_owners_sets_open(client: TestClient) -> None:
    told = client.get("/review/sets").json()
    assert told["sets"] == ["study", "small"]
    assert (told["keeps"], told["making"]["prompts"], told["making"]["ways"]) == (True, 20, 3)
    about = client.get("/review/sets/study").json()
    assert (len(about["items"]), len(about["ways"])) == (100, 5)
    assert about["items"][0]["marks"][0]["is_same"] is True
    item = client.get("/review/sets/study/items/0").json()
    assert "".join(item["answers"][2]["pieces"]) == item["answers"][2]["text"]
    lines = client.get("/review/sets/study/items/0/2").text.split("\n")
    assert json.loads(lines[0])["settings"]["tau"] == 0.8
    assert client.get("/review/sets/small/items/0/1").text == ""


def test_a_trailing_slash_is_served_without_a_redirect(client: TestClient) -> None:
    client.follow_redirects = False
    for path in ("/review/sets", "/review/sets/study"):
        assert client.get(f"{path}/").json() == client.get(path).json()
    bare = client.post("/review/sets/", json={})
    assert (bare.status_code, bare.json()) == (400, client.post("/review/sets", json={}).json())


def test_what_is_not_there_is_a_sentence(client: TestClient) -> None:
    for path in ("sets/absent", "sets/..%2Fsmall", "sets/small/items/8", "sets/small/masked/0-9"):
        answer = client.get(f"/review/{path}")
        assert answer.status_code in (400, 404)
        assert answer.json()["detail"].endswith(".")
    assert client.get("/review/sets/small/masked/1-1").status_code == 400
    assert client.post("/review/sets/small/figures", content=b"{").status_code == 415


@pytest.mark.parametrize("seed", range(10))
def test_nothing_tells_a_side_before_the_reveal(tmp_path: Path, seed: int) -> None:
    """With the answers of two ways exchanged the page is told the very same, but for which text is
    left: whoever reads answers learns nothing of the ways. Ten secrets."""
    rng = random.Random(seed)
    review = write_set(tmp_path / "review" / "small")
    secret = rng.randbytes(32)
    (tmp_path / "review" / "review.secret").write_bytes(secret)
    client = client_over(str(tmp_path))
    index = client.get("/review/sets/small/masked/0-1")
    assert index.text == client.get("/review/sets/small/masked/0-1").text
    for item in index.json()["items"]:
        assert item.keys() == {"id", "category", "head", "same"}
    found, lengths = [], set()
    for number in range(NUM_ITEMS - 1):
        one, other = (
            client.get(f"/review/sets/small/masked/{pair}/{number}") for pair in ("0-1", "1-0")
        )
        told, again = one.json(), other.json()
        lengths.add(len(told["sealed"]))
        seal = told.pop("sealed")
        assert seal != again.pop("sealed")
        assert told == again  # the order of the pair changes nothing
        assert told.keys() == {
            *("id", "prompt", "system", "category", "turns", "reference", "left", "right"),
        }
        texts = [review.answer(number, way).text for way in (0, 1)]  # type: ignore[union-attr]
        assert sorted((told["left"], told["right"])) == sorted(texts)
        rest = one.text.replace(seal, "")  # where any three letters may stand by chance
        rest = rest.replace(json.dumps(texts[0]), "").replace(json.dumps(texts[1]), "")
        assert "tau" not in rest
        assert '"ar"' not in rest
        found.append(told["left"] == texts[0])
    assert len(lengths) == 1  # a longer name on the left makes no longer seal
    drawn = [client.get(f"/review/sets/small/masked/0-1/{n}").json() for n in range(NUM_ITEMS - 1)]
    sides = client.post(
        "/review/sets/small/reveal", json={"sealed": [each["sealed"] for each in drawn]}
    ).json()["sides"]
    assert [side["left"] == "ar" for side in sides] == found
    if seed == 0:  # not always the same side, nor by turns
        assert len(set(found)) == 2


def test_a_masked_judgement_is_kept_with_its_sides_and_told_without(client: TestClient) -> None:
    told = client.get("/review/sets/small/masked/0-1/0").json()
    posted = row(0, sealed=told["sealed"], is_masked=True)
    del posted["left"], posted["right"]
    answer = client.post("/review/sets/small/judgements", json={"row": posted}, headers=KEY)
    assert answer.status_code == 200
    assert not {"left", "right"} & answer.json()["row"].keys()
    masked = client.get("/review/sets/small/judgements?masked", headers=KEY).json()["rows"]
    assert not {"left", "right"} & masked[0].keys()
    assert masked[0]["pair"] == ["ar", "tau=0"]
    open_ = client.get("/review/sets/small/judgements", headers=KEY).json()["rows"]
    again = client.post(
        "/review/sets/small/reveal", json={"sealed": [masked[0]["sealed"], told["sealed"]]}
    ).json()["sides"]
    assert again[0] == again[1] == {side: open_[0][side] for side in ("left", "right")}
    other = {**posted, "item": "p1"}
    answer = client.post("/review/sets/small/judgements", json={"row": other}, headers=KEY)
    assert answer.json()["detail"] == "The sides of a judgement are those of another prompt."
    forged = {**posted, "sealed": told["sealed"][:-4] + "AAAA"}
    answer = client.post("/review/sets/small/judgements", json={"row": forged}, headers=KEY)
    assert answer.status_code == 400


def test_only_who_has_the_key_writes_and_guesses_are_counted(client: TestClient) -> None:
    path = "/review/sets/small/judgements"
    assert client.post(path, json={"row": row(0)}).status_code == 401
    assert client.get(path).status_code == 401
    wrong = [client.get(path, headers={"x-review-key": "x"}).status_code for _ in range(12)]
    assert wrong == [401] * 10 + [429] * 2
    refused = client.post(path, json={"row": row(0)}, headers=KEY)
    assert refused.status_code == 429  # past the limit the right one is not compared either
    assert 0 < int(refused.headers["retry-after"]) <= 60
    nowhere = client_over("", key="")
    assert nowhere.get("/review/sets").json()["keeps"] is False
    answer = nowhere.post("/review/sets/study/judgements", json={"row": row(0)}, headers=KEY)
    assert answer.status_code == 401


def test_requests_of_an_address_are_counted_by_the_minute() -> None:
    quota = Quota(2)
    quota.take("one")
    quota.take("one")
    quota.take("other")
    with pytest.raises(ApiError, match="wait a minute"):
        quota.take("one")


def test_figures_and_files_are_those_of_the_command(client: TestClient, data: Path) -> None:
    rows = [row(n, name) for n in range(6) for name in ("anna", "ben")]
    told = client.post("/review/sets/small/figures", json={"rows": rows}).json()
    [first] = [each for each in told["preferences"] if each["way"] == "tau=0"]
    assert (first["num_prompts"], first["num_judgements"], first["num_identical"]) == (6, 12, 1)
    assert told["agreement"]["num_shared"] == 6
    assert "far too few" in told["caution"]
    review = ReviewSet.open(data / "review" / "small")
    for form in ("csv", "jsonl", "html", "comparator"):
        posted = {"form": form, "rows": rows, "way": 1}
        answer = client.post("/review/sets/small/export", json=posted)
        assert answer.status_code == 200, answer.text
        if form == "csv":
            lines = list(csv.DictReader(io.StringIO(answer.text, newline="")))
            assert len(lines) == 12
            assert lines[0]["preferred"] == "ar"
        if form == "jsonl":
            assert len(current(exports.read_jsonl(answer.text, review.id))) == 12
    answer = client.post("/review/sets/small/export", json={"form": "exe", "rows": []})
    assert answer.json()["detail"] == "A set is exported as csv, jsonl, html or comparator."


def test_files_of_reviewers_merge_and_conflicts_stay(client: TestClient, data: Path) -> None:
    review = ReviewSet.open(data / "review" / "small")
    bens = [row(n, "ben") for n in range(3)]
    library = Library(str(data))
    text = exports.to_jsonl(review, library.read_rows("small", bens))
    own = [row(0), {**row(0, "ben"), "id": "another", "preference": "right"}]
    told = client.post("/review/sets/small/merge", json={"rows": own, "text": text}).json()
    assert (told["num_brought"], told["num_conflicts"]) == (3, 1)
    assert {each["reviewer"] for each in told["rows"]} == {"anna", "ben", "ben (2)"}


def fuzzed(text: str, rng: random.Random) -> str:
    """A file with something wrong in it."""
    lines = text.split("\n")
    at = rng.randrange(len(lines) - 1)
    kind = rng.randrange(8)
    if kind == 0:
        lines[at] = lines[at][: rng.randrange(len(lines[at]))] or "{"
    elif kind == 1:
        lines[at] = rng.choice(["[]", "null", "7", '"x"', "{}", "[" * 5000, '{"a":' * 2000])
    elif kind == 2:
        lines[at] = (
            lines[at]
            .replace('"preference": "left"', '"preference": "best"')
            .replace('"type": "review"', '"type": "x"')
        )
    elif kind == 3:
        lines[at] = lines[at].replace(
            "[4, 2]", rng.choice(["[9, 2]", "[4]", '["4", 2]', "[true, 1]"])
        )
        lines[at] = lines[at].replace('"set": "', '"set": "0')
    elif kind == 4:
        lines[at] = (
            lines[at].replace('"left": "ar"', '"left": "tau=0"').replace('"name":', '"type":')
        )
    elif kind == 5:
        lines[at] = (
            lines[at].replace('"item": "', '"item": "absent').replace('"set": "', '"set": "1')
        )
    elif kind == 6:
        lines[at] = lines[at].replace('"note": "', '"note": "\\ud800').replace('"set"', '"sett"')
    else:
        lines[at] = lines[at].replace('"tags": [[]', f'"tags": [{["t" * 50] * 3}'.replace("'", '"'))
        lines[at] = lines[at].replace('"type"', '"kind"')
    return "\n".join(lines)


def test_fuzzed_imports_get_a_sentence_each(client: TestClient, data: Path) -> None:
    """300 damaged files: of judgements, a sentence that says what and where."""
    review = ReviewSet.open(data / "review" / "small")
    library = Library(str(data))
    text = exports.to_jsonl(review, library.read_rows("small", [row(n) for n in range(5)]))
    rng, wrong = random.Random(0), 0
    for _ in range(300):
        bad = fuzzed(text, rng)
        answer = client.post("/review/sets/small/merge", json={"rows": [], "text": bad})
        assert answer.status_code in (200, 400), (answer.status_code, bad)
        if answer.status_code == 400:
            wrong += 1
            said = answer.json()["detail"]
            assert said.endswith(".")
            assert len(said) < 200
            assert said.startswith("Line ") or "that this set does not have" in said, said
    assert wrong > 250


def test_samples_of_lm_eval_open_as_a_set(client: TestClient) -> None:
    def sample(prompt: str, answer: str) -> str:
        arguments = {"gen_args_0": {"arg_0": prompt, "arg_1": {}}}
        return json.dumps({"doc_id": 0, "arguments": arguments, "resps": [[answer]]})

    files = [
        {"name": "ar", "text": "\n".join([sample("one", "1"), sample("two", "2")])},
        {"name": "bold", "text": sample("two", "II")},
    ]
    name = client.post("/review/sets", json={"samples": files, "name": "gsm8k"}).json()["name"]
    about = client.get(f"/review/sets/{name}").json()
    assert (about["name"], [way["name"] for way in about["ways"]]) == ("gsm8k", ["ar", "bold"])
    item = client.get(f"/review/sets/{name}/items/0").json()
    assert [each["text"] for each in item["answers"]] == ["2", "II"]
    files[1]["text"] = "\n{}"
    answer = client.post("/review/sets", json={"samples": files})
    assert answer.json()["detail"].startswith("bold, line 2: it is no sample of lm_eval")
    sealed = client.get(f"/review/sets/{name}/sealed").json()["sealed"]
    assert client.post("/review/sets", json={"sealed": sealed}).json() == {"name": name}


def test_samples_as_one_json_array_open_as_a_set(client: TestClient) -> None:
    """As earlier releases of lm_eval wrote them."""
    rows = [{"arguments": [[prompt, {}]], "resps": [[prompt.upper()]]} for prompt in ("a", "b")]
    files = [{"name": name, "text": json.dumps(rows, indent=2)} for name in ("ar", "bold")]
    name = client.post("/review/sets", json={"samples": files, "name": "old"}).json()["name"]
    assert len(client.get(f"/review/sets/{name}").json()["items"]) == 2


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
    item = client.get(f"/review/sets/{name}/items/0").json()
    assert item["answers"][0]["pieces"]
    assert client.get(f"/review/sets/{name}/items/0/0").text.split("\n") == pins[0].split("\n")
    answer = client.post("/review/sets", json={"pins": [pins[0], "{"]})
    assert answer.status_code == 400
    assert answer.json()["detail"].endswith(".")


def test_pins_are_read_in_the_places_of_their_address(client: TestClient) -> None:
    """Other visitors' pins take no place of this one's, and its own are bounded."""
    scripts = [
        samples.Script(samples.PROSE, DecodeSettings(tau=0.95, block_size=8)),
        samples.Script(samples.PROSE, DecodeSettings(method="ar")),
    ]
    pins = ["\n".join(samples.run(script).lines()) for script in scripts]
    reading = imported_runs._reading
    reading[""] = imported_runs.MAX_OF_ONE
    try:
        answer = client.post("/review/sets", json={"pins": pins, "name": "pins"})
        assert imported_runs.BUSY not in answer.text
        reading.clear()
        reading["testclient"] = imported_runs.MAX_OF_ONE
        answer = client.post("/review/sets", json={"pins": pins, "name": "pins"})
        assert answer.json() == {"detail": imported_runs.BUSY}
    finally:
        reading.clear()


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Handlers]:
    """Whose engine writes a scripted text."""
    handlers = make_handlers(tmp_path, ScriptedBackend("A scripted answer. " * 20), port=0)
    yield handlers
    handlers.engines.close()


@pytest.fixture
def library(scripted: Handlers) -> Library:
    return scripted.library


@pytest.fixture
def made(scripted: Handlers) -> TestClient:
    settings = scripted.engines.settings
    return TestClient(make_review(scripted.library, scripted.making, settings))


def wait_for(client: TestClient, name: str, state: str) -> dict[str, Any]:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        told: dict[str, Any] = client.get(f"/review/make/{name}").json()
        if told["state"] in (state, "failed"):
            assert told["state"] == state, told
            return told
        time.sleep(0.05)
    raise AssertionError(f"not {state} in time")


def test_a_set_is_made_paused_resumed_and_comes_back_from_its_seal(
    made: TestClient, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {
        "prompts": 'prompt\none\n"two\nthree"\n',
        "file": "x.csv",
        "ways": ["ar", "tau=0,B=4"],
        "max_new_tokens": 16,
        "name": "mine",
    }
    name = made.post("/review/make", json=asked).json()["name"]
    made.post(f"/review/make/{name}", json={"do": "pause"})
    made.post(f"/review/make/{name}", json={"do": "resume"})
    told = wait_for(made, name, "done")
    assert (told["num_done"], told["num_all"], told["refused"]) == (4, 4, [])
    about = made.get(f"/review/sets/{name}").json()
    assert [way["name"] for way in about["ways"]] == ["ar", "tau=0,B=4"]
    assert made.get(f"/review/sets/{name}/items/1/1").text.startswith('{"type":"header"')
    sealed = made.get(f"/review/sets/{name}/sealed").json()["sealed"]
    before = made.get(f"/review/sets/{name}/items/0").json()
    monkeypatch.setattr("app.review.library.MAX_VISITORS", 1)
    library.place()  # for which the oldest goes
    assert made.get(f"/review/sets/{name}").status_code == 400
    assert made.post("/review/sets", json={"sealed": sealed}).json() == {"name": name}
    assert made.get(f"/review/sets/{name}/items/0").json() == before


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"prompts": "\n".join(map(str, range(21)))}, "at most 20 prompts"),
        ({"ways": ["ar"]}, "2 to 3 ways"),
        ({"ways": ["ar", "tau=0", "tau=0.5", "tau=0.9"]}, "2 to 3 ways"),
        ({"ways": ["ar", "fast"]}, "'fast' is no way of decoding"),
        ({"ways": ["ar", "tau=0.8,B=auto"]}, "Choose a number as B"),
        ({"ways": ["ar", "tau=0,checkpoint=other"]}, "Choose a checkpoint from the list"),
        ({"max_new_tokens": 100_000}, "limit on tokens"),
        ({"prompts": ""}, "no prompt"),
    ],
)
def test_what_cannot_be_made_is_refused(
    made: TestClient, changes: dict[str, Any], said: str
) -> None:
    asked = {"prompts": "one", "ways": ["ar", "tau=0,B=4"], **changes}
    answer = made.post("/review/make", json=asked)
    assert answer.status_code == 400
    assert said in answer.json()["detail"]


SERVER = """
import sys
import uvicorn
from types import SimpleNamespace
from app.handlers import Handlers
from app.review.library import Library
from app.review.making import Making
from app.review.routes import make_review
from app.settings import AppSettings
data, port = sys.argv[1], int(sys.argv[2])
engines = SimpleNamespace(entries={}, default="", settings=AppSettings())
library = Library(data)
settings = AppSettings(data=data, review_key="the key of a test")
app = make_review(library, Making(engines, library), settings)
uvicorn.run(app, host="127.0.0.1", port=port, log_level="error")
"""


@pytest.mark.parametrize(
    "round_", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 10))]
)
def test_no_acknowledged_judgement_is_lost_by_a_kill(data: Path, round_: int) -> None:
    """Two reviewers judge while the server is killed; what was acknowledged is in the file."""
    port = 8600 + round_ + 20 * int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:])
    command = [sys.executable, "-c", SERVER, str(data), str(port)]
    server = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    kept: list[str] = []

    def judge(name: str) -> None:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=KEY) as asks:
            for number in range(10_000):
                posted = {**row(number % 7, name), "id": f"{name}-{number}"}
                try:
                    answer = asks.post("/review/sets/small/judgements", json={"row": posted})
                except httpx.HTTPError:
                    if kept or server.poll() is not None:
                        return
                    time.sleep(0.05)
                    continue
                if answer.status_code != 200:
                    return
                kept.append(answer.json()["row"]["id"])

    people = [threading.Thread(target=judge, args=[name]) for name in ("anna", "ben")]
    for person in people:
        person.start()
    until = time.monotonic() + 60
    while len(kept) < 20 and time.monotonic() < until:
        time.sleep(0.01)
    os.kill(server.pid, signal.SIGKILL)
    server.wait()
    for person in people:
        person.join(30)
    assert len(kept) >= 20
    there = {each["id"] for each in Library(str(data)).kept("small", is_masked=False)}
    assert set(kept) <= there
