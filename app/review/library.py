"""The sets that this page has to review, what it tells of them, and judgements that are kept here.

There are the study that comes with the program, the owner's sets (folders and archives below
``review/`` in MARS_DATA) and visitors' own, which their browsers keep sealed and which lie here for
a while. A masked pair is told apart from everything that would give its sides away. Knows no route
and no gradio.
"""

from __future__ import annotations

import base64
import gzip
import json
import logging
import re
import secrets
import shutil
import tempfile
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from mars_runtime.json_values import as_list, as_mapping, as_text
from mars_runtime.machine import cache_folder
from mars_runtime.places import ASSETS
from mars_runtime.review import budget, exports
from mars_runtime.review.answers import marks
from mars_runtime.review.figures import figures, study
from mars_runtime.review.judgements import (
    Judgement,
    JudgementError,
    JudgementStore,
    StoreError,
    current,
    merged,
    read_judgement,
)
from mars_runtime.review.masked import MAX_SEALED, NUM_BYTES, seal, secret_in, sides, unseal
from mars_runtime.review.sets import ReviewSet, SetError, unpack

STUDY = "study"
NAME = re.compile(r"[\w-][\w.-]{0,79}", re.ASCII)
ARCHIVE = ".tar.xz"
MAX_LISTED = 200
MAX_OPEN, MAX_VISITORS, MAX_OF_ONE = 12, 40, 8
"""Sets that are held in memory, visitors' sets that are stored here, and those of one address."""
QUICK = 1
"""How hard a set is compressed that is asked for while it is made: a twelfth of the time."""
MAX_ROWS = 20_000
"""Judgements that are worked on at a time: 500 prompts by ten people, each four times."""
HEAD = 90
"""Characters of a prompt in a list."""
MAX_EXPORT_CHARS = 64_000_000
Pair = tuple[int, int]
log = logging.getLogger(__name__)
NO_SUCH = "There is no such set here: choose one from the list."
NO_PROMPT = "This set has no such prompt or way: reload the page."
UNSTORED = "The server cannot read or write its files at the moment: try again later."
UNSTORED_SECRET = "The secret of masked sides cannot be stored: a restart draws sides again"
UNREADABLE = "The server cannot read the set {}: choose another from the list."
LARGE = (
    "This set is too large to be kept in the browser: export what you need before you leave, or "
    "make it with fewer prompts or ways."
)
GONE = "This set is not here any more: open it again from the list."


class Library:
    """All of them by name; opened when they are first asked for. ``data``: MARS_DATA, empty for
    none."""

    def __init__(self, data: str) -> None:
        self._folder = Path(data) / "review" if data else None
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Shown] = OrderedDict()
        self._visitors: dict[str, VisitorSet] = {}
        self._held: set[str] = set()
        self._room: tempfile.TemporaryDirectory[str] | None = None
        self._secret = b""
        self._store: JudgementStore | None = None

    @property
    def keeps(self) -> bool:
        """Whether judgements can be kept here."""
        return self._folder is not None

    @property
    def secret(self) -> bytes:
        """The secret that sides are drawn from; one for this process where none can be stored."""
        with self._lock:
            if not self._secret:
                try:
                    self._secret = secret_in(self._folder or cache_folder())
                except OSError as error:
                    reason = error.strerror or str(error)
                    log.error("%s (%s)", UNSTORED_SECRET, reason)
                    self._secret = secrets.token_bytes(NUM_BYTES)
            return self._secret

    @property
    def store(self) -> JudgementStore:
        """Where judgements are kept. Raises SetError where none are, StoreError where they can't
        be."""
        if self._folder is None:
            raise SetError("This page keeps no judgements: your browser does.")
        with self._lock:
            try:
                self._store = self._store or JudgementStore(self._folder / "judgements.sqlite")
            except OSError as error:
                reason = error.strerror or type(error).__name__
                raise StoreError(
                    f"The server cannot store judgements at the moment ({reason}): this browser "
                    "keeps yours and sends them again."
                ) from error
            return self._store

    def names(self) -> list[str]:
        """The study and the owner's sets."""
        owned: list[str] = []
        if self._folder is not None and self._folder.is_dir():
            for path in sorted(self._folder.iterdir()):
                name = path.name.removesuffix(ARCHIVE)
                is_set = path.name.endswith(ARCHIVE) or (path / "set.json").is_file()
                if is_set and NAME.fullmatch(name):
                    owned.append(name)
        return [STUDY, *(name for name in owned[:MAX_LISTED] if name != STUDY)]

    def find(self, name: str) -> Shown:
        """A set by its name. Raises SetError, OutputError."""
        with self._lock:
            known = self._open.get(name)
            if known is not None:
                self._open.move_to_end(name)
                return known
        path = self._path(name)
        try:
            made = Shown(name, ReviewSet.open(path))
        except SetError as error:
            log.error("%s", error)
            raise SetError(UNREADABLE.format(name)) from error
        with self._lock:
            self._open[name] = made
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        return made

    def _path(self, name: str) -> Path:
        if name == STUDY:
            return ASSETS / "review" / f"{STUDY}{ARCHIVE}"
        if name in self._visitors:
            return self._visitors[name].folder
        if self._folder is None or not NAME.fullmatch(name):
            raise SetError(NO_SUCH)
        for path in (self._folder / name, self._folder / f"{name}{ARCHIVE}"):
            if (path / "set.json").is_file() or path.is_file():
                return path
        raise SetError(GONE if name.startswith(VISITORS) else NO_SUCH)

    def place(self, name: str = "", address: str = "") -> tuple[str, Path]:
        """A name that cannot be guessed, or the one given, and an empty folder for a visitor's set.

        The folder goes with this program. Where there are too many, the oldest set of the address
        that has most goes first, so an address pushes out its own sets before another's.
        """
        name = name or VISITORS + secrets.token_urlsafe(16)
        with self._lock:
            self._room = self._room or tempfile.TemporaryDirectory(prefix="mars-review-")
            folder = Path(tempfile.mkdtemp(dir=self._room.name))
            self._visitors[name] = VisitorSet(folder, address)
            while old := self._surplus(name, address):
                self._open.pop(old, None)
                shutil.rmtree(self._visitors.pop(old).folder, ignore_errors=True)
        return name, folder

    def _surplus(self, name: str, address: str) -> str:
        """A set that has to go; empty for none. Never ``name``, nor one in the making."""
        counts = Counter(each.address for each in self._visitors.values())
        idle = [each for each in self._visitors if each != name and each not in self._held]
        own = [each for each in idle if self._visitors[each].address == address]
        if counts[address] > MAX_OF_ONE and own:
            return own[0]
        if len(self._visitors) <= MAX_VISITORS or not idle:
            return ""
        return max(idle, key=lambda each: counts[self._visitors[each].address])

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Meanwhile this visitor's set stays."""
        with self._lock:
            self._held.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(name)

    def folder(self, name: str) -> Path:
        """Where a visitor's set lies. Raises SetError."""
        if name not in self._visitors:
            raise SetError(GONE)
        return self._visitors[name].folder

    def forget(self, name: str) -> None:
        """Let go of a set that changed, so that it is opened anew."""
        with self._lock:
            self._open.pop(name, None)

    def sealed(self, name: str) -> str:
        """A visitor's set as its browser keeps it. Raises SetError."""
        lies = self.folder(name)
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "set.tar.xz"
            ReviewSet.open(lies).pack(packed, QUICK)
            body = base64.b64encode(packed.read_bytes()).decode()
        text = seal(self.secret, {"name": name, "archive": body})
        if len(text) > MAX_SEALED:
            raise SetError(LARGE)
        return text

    def bring(self, text: str, address: str = "") -> str:
        """Unpack a set that a browser kept; its name. Raises SealError, SetError, OSError."""
        told = as_mapping(unseal(self.secret, text))
        name = as_text(told["name"])
        if name in self._visitors:
            return name
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "set.tar.xz"
            packed.write_bytes(base64.b64decode(as_text(told["archive"])))
            try:
                unpack(packed, self.place(name, address)[1])
            except OSError:  # the disk is full: the set is not here, and can be brought again
                self._drop(name)
                raise
            except ValueError as error:
                self._drop(name)
                raise SetError("This set is damaged: make it again.") from error
        return name

    def _drop(self, name: str) -> None:
        """Remove a visitor's set."""
        with self._lock:
            self._open.pop(name, None)
            shutil.rmtree(self._visitors.pop(name).folder, ignore_errors=True)

    def masked(self, name: str, pair: Pair) -> dict[str, Any]:
        """The prompts of a masked pair: which are the same by both ways, and nothing else."""
        review = self.find(name).review
        _check_pair(review, pair)
        items = []
        for number, item in enumerate(review.items):
            texts = {_text(review, number, way) for way in pair}
            items.append({**_listed(review, number), "id": item.id, "same": len(texts) == 1})
        return {**_head(name, review), "items": items, "marks": []}

    def masked_item(self, name: str, pair: Pair, number: int) -> dict[str, Any]:
        """A prompt with two texts, left and right as they were drawn, and the seal on which is
        which. Raises SetError."""
        review = self.find(name).review
        _check_pair(review, pair)
        _check_item(review, number)
        item = review.items[number]
        names = {review.about.ways[way].name: way for way in pair}
        drawn = sides(self.secret, review.id, item.id, sorted(names))
        left, right = (_text(review, number, names[side]) for side in drawn)
        told = {"set": review.id, "item": item.id, "left": drawn[0], "right": drawn[1]}
        return {**_asked(review, number), "left": left, "right": right, "sealed": self._seal(told)}

    def _seal(self, told: Mapping[str, str]) -> str:
        return seal(self.secret, told)

    def reveal(self, name: str, texts: Iterable[Any]) -> list[dict[str, str]]:
        """Which way stood on which side, for each seal. Raises SetError, SealError."""
        review = self.find(name).review
        found = []
        for each in texts:
            budget.check()
            found.append(_sides(self._opened(review, as_text(each))))
        return found

    def _opened(self, review: ReviewSet, text: str) -> Mapping[str, Any]:
        told = as_mapping(unseal(self.secret, text))
        if told.get("set") != review.id:
            raise SetError("These sides are of another set.")
        return told

    def read_row(self, name: str, value: Any) -> Judgement:
        """A judgement as a page sends it, its sides sealed or open. Raises SetError, SealError,
        JudgementError."""
        return self._read_row(self.find(name), value)

    def _read_row(self, shown: Shown, value: Any) -> Judgement:
        told = dict(as_mapping(value))
        if "sealed" in told:
            opened = self._opened(shown.review, as_text(told.pop("sealed")))
            if opened["item"] != told.get("item"):
                raise JudgementError("The sides of a judgement are those of another prompt.")
            told |= _sides(opened)
        told.pop("pair", None)
        row = read_judgement(told)
        if row.item not in shown.item_ids:
            raise JudgementError("A judgement is about a prompt that this set does not have.")
        if not {row.left, row.right} <= shown.way_names:
            raise JudgementError("A judgement is about a way that this set does not have.")
        return row

    def read_rows(self, name: str, values: Any) -> list[Judgement]:
        """Several. Raises as ``read_row``."""
        given = as_list(values)
        if len(given) > MAX_ROWS:
            raise JudgementError(f"At most {MAX_ROWS:,} judgements are worked on at a time.")
        shown = self.find(name)
        found = []
        for each in given:
            budget.check()
            found.append(self._read_row(shown, each))
        return found

    def keep(self, name: str, value: Any) -> dict[str, Any]:
        """A judgement that is on disk when this returns, as the page that sent it may know it."""
        row = self.read_row(name, value)
        kept = self.store.add(self.find(name).review.id, row).as_json()
        return _resealed(kept, as_mapping(value).get("sealed"))

    def kept(self, name: str, is_masked: bool) -> list[dict[str, Any]]:
        """All judgements of a set; for a page that is masked the sides of masked ones sealed."""
        review = self.find(name).review
        rows = [row.as_json() for row in self.store.rows(review.id)]
        if not is_masked:
            return rows
        return [
            _resealed(row, self._seal({"set": review.id, "item": row["item"], **_sides(row)}))
            if row["is_masked"]
            else row
            for row in rows
        ]

    def figures(self, name: str, rows: Any) -> dict[str, Any]:
        """What judgements say together."""
        return figures(self.find(name).review, current(self.read_rows(name, rows)).values())

    def export(self, name: str, form: str, rows: Any, way: int = 0) -> str:
        """A file of the set and its judgements. Raises SetError for an unknown form."""
        review, read = self.find(name).review, self.read_rows(name, rows)
        if form == "csv":
            return exports.to_csv(review, read, MAX_EXPORT_CHARS)
        if form == "jsonl":
            return exports.to_jsonl(review, read)
        if form == "html":
            return exports.to_html(review, read)
        if form == "comparator" and way in review.about.others:
            return exports.to_comparator(review, read, way)
        raise SetError("A set is exported as csv, jsonl, html or comparator.")

    def merge(self, name: str, rows: Any, text: str) -> dict[str, Any]:
        """A page's judgements and those of a file. Raises JudgementError that names the line."""
        shown = self.find(name)
        brought = exports.read_jsonl(text, shown.review.id)
        for row in brought:
            budget.check()
            self._read_row(shown, row.as_json())
        found = merged([self.read_rows(name, rows), brought])
        return {
            "rows": [row.as_json() for row in found.rows],
            "num_conflicts": found.num_conflicts,
            "num_brought": len(brought),
        }


VISITORS = "own-"
"""How names of visitors' sets begin."""


@dataclass(frozen=True, slots=True)
class VisitorSet:
    """A visitor's set: where it is stored, and the address that made it."""

    folder: Path
    address: str


class Shown:
    """An opened set and what is told of it, packed when it is first asked for."""

    def __init__(self, name: str, review: ReviewSet) -> None:
        self.name = name
        self.review = review
        self.item_ids = frozenset(item.id for item in review.items)
        self.way_names = frozenset(way.name for way in review.about.ways)
        self._packed: dict[object, bytes] = {}

    def told(self) -> bytes:
        """Ways, prompts and automatic marks, as gzipped JSON."""
        return self._once("", self._about)

    def item(self, number: int) -> bytes:
        """A prompt and all its answers, as gzipped JSON. Raises SetError."""
        _check_item(self.review, number)
        return self._once(number, lambda: self._item(number))

    def trace(self, number: int, way: int) -> list[str]:
        """The lines of a trace; none where there is text alone. Raises SetError."""
        _check_item(self.review, number)
        _check_way(self.review, way)
        if not self.review.lines(number, way):
            return []
        return list(self.review.trace(number, way).lines())

    def _once(self, key: object, make: Callable[[], Any]) -> bytes:
        found = self._packed.get(key)
        if found is None:
            text = json.dumps(make(), ensure_ascii=False, separators=(",", ":"))
            found = self._packed[key] = gzip.compress(text.encode(), 6)
        return found

    def _about(self) -> dict[str, Any]:
        return {
            **_head(self.name, self.review),
            "marks": study(self.review)["marks"],
            "items": [
                {**_listed(self.review, number), "id": item.id, "marks": self._marks(number)}
                for number, item in enumerate(self.review.items)
            ],
        }

    def _marks(self, number: int) -> list[dict[str, Any] | None]:
        """Of the answer by each way, beside the reference's; None where one is missing."""
        review = self.review
        reference = review.answer(number, review.about.reference)
        told: list[dict[str, Any] | None] = []
        for way in range(len(review.about.ways)):
            answer = review.answer(number, way)
            if answer is None or reference is None:
                told.append(None)
                continue
            found = asdict(marks(answer, reference))
            difference = found.pop("difference")
            word = None if difference is None else difference["word"]
            told.append({**found, "word": word, "num_tokens": answer.num_tokens})
        return told

    def _item(self, number: int) -> dict[str, Any]:
        answers = [self.review.answer(number, way) for way in range(len(self.review.about.ways))]
        return {
            **_asked(self.review, number),
            "answers": [None if each is None else each.as_json() for each in answers],
            "marks": self._marks(number),
        }


def _head(name: str, review: ReviewSet) -> dict[str, Any]:
    """What a set is, and nothing of its answers."""
    about = review.about
    return {
        "address": name,
        "id": review.id,
        "name": about.name,
        "reference": about.reference,
        "ways": [way.as_json() for way in about.ways],
        "made": dict(about.made),
    }


def _listed(review: ReviewSet, number: int) -> dict[str, Any]:
    """What a list tells of a prompt."""
    item = review.items[number]
    return {"category": item.category, "head": " ".join(item.prompt[: 2 * HEAD].split())[:HEAD]}


def _asked(review: ReviewSet, number: int) -> dict[str, Any]:
    """What was asked: all of a prompt but what its checker knows."""
    item = review.items[number]
    told = {name: getattr(item, name) for name in ("id", "prompt", "system", "category")}
    return {**told, "turns": item.turns, "reference": item.reference}


def _text(review: ReviewSet, number: int, way: int) -> str:
    answer = review.answer(number, way)
    if answer is None:
        raise SetError("An answer of this prompt is missing: finish the set first.")
    return answer.text


def _sides(told: Mapping[str, Any]) -> dict[str, str]:
    return {side: as_text(told[side]) for side in ("left", "right")}


def _resealed(row: dict[str, Any], sealed: Any) -> dict[str, Any]:
    """Without its sides where they are sealed; which two they are is told in order of names."""
    if not sealed:
        return row
    kept = {name: value for name, value in row.items() if name not in ("left", "right")}
    return {**kept, "pair": sorted([row["left"], row["right"]]), "sealed": sealed}


def _check_item(review: ReviewSet, number: int) -> None:
    if not 0 <= number < len(review.items):
        raise SetError(NO_PROMPT)


def _check_way(review: ReviewSet, way: int) -> None:
    if not 0 <= way < len(review.about.ways):
        raise SetError(NO_PROMPT)


def _check_pair(review: ReviewSet, pair: Pair) -> None:
    for way in pair:
        _check_way(review, way)
    if pair[0] == pair[1]:
        raise SetError("A pair is of two ways that differ.")
