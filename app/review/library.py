"""The review sets of this page, the parts of them that clients may see, and the stored judgements.

There are three types of sets: the bundled study, the operator's folders and archives under
``review/`` in MARS_DATA, and the sets of visitors. A visitor's browser stores its set in sealed
form, and the server stores a copy for some time. What a client gets for a masked pair does not
reveal which method is on which side.
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
"""MAX_OPEN: maximum number of sets in memory. MAX_VISITORS, MAX_OF_ONE: maximum number of visitors'
sets on disk, in total and per address.
"""
QUICK = 1
"""Compression level for sets that are compressed while a client waits. Compression at this level
takes a twelfth of the time that the default level takes.
"""
MAX_ROWS = 20_000
"""Maximum number of judgements per request: 500 prompts, ten reviewers, four judgements each."""
HEAD = 90
"""Number of characters of a prompt that a list shows."""
MAX_EXPORT_CHARS = 64_000_000
Pair = tuple[int, int]
log = logging.getLogger(__name__)
OTHER_PROMPT = "This judgement was made for another prompt. Reload the page."
NO_FORMAT = "The export format must be csv, jsonl, html or comparator."
NO_SUCH = "This set does not exist. Choose one from the list."
NO_PROMPT = "This set does not have that prompt or method. Reload the page."
UNSTORED = "The server cannot read or write its files right now. Try again later."
UNSTORED_SECRET = (
    "the secret of masked pairs cannot be stored; after a restart, sides may be swapped"
)
UNREADABLE = "The server cannot read the set {}. Choose another one from the list."
LARGE = (
    "This set is too large for the browser to store. Export what you need before you leave, or "
    "create a set with fewer prompts or methods."
)
GONE = "This set is no longer loaded. Open it again from the list."


class Library:
    """All sets by name, which are opened on first use. data: the folder MARS_DATA, or "" if there
    is none.
    """

    def __init__(self, data: str) -> None:
        self._folder = Path(data) / "review" if data else None
        self._lock = threading.Lock()
        self._open: OrderedDict[str, Shown] = OrderedDict()
        self._visitors: dict[str, VisitorSet] = {}
        self._held: set[str] = set()
        self._visitor_folder: tempfile.TemporaryDirectory[str] | None = None
        self._secret = b""
        self._store: JudgementStore | None = None

    @property
    def keeps(self) -> bool:
        """Whether this server stores judgements."""
        return self._folder is not None

    @property
    def secret(self) -> bytes:
        """The secret from which the left and right side of masked pairs are derived. If it cannot
        be stored, it is lost when the process ends.
        """
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
        """The store of judgements. Raises SetError if this server stores none, StoreError if the
        store cannot be opened.
        """
        if self._folder is None:
            raise SetError("This server stores no judgements. They stay in your browser.")
        with self._lock:
            try:
                self._store = self._store or JudgementStore(self._folder / "judgements.sqlite")
            except OSError as error:
                reason = error.strerror or type(error).__name__
                raise StoreError(
                    f"The server cannot store judgements right now ({reason}). Your browser "
                    "stores them and sends them again later."
                ) from error
            return self._store

    def names(self) -> list[str]:
        """Return the names of the bundled study and of the operator's sets."""
        owned: list[str] = []
        if self._folder is not None and self._folder.is_dir():
            for path in sorted(self._folder.iterdir()):
                name = path.name.removesuffix(ARCHIVE)
                is_set = path.name.endswith(ARCHIVE) or (path / "set.json").is_file()
                if is_set and NAME.fullmatch(name):
                    owned.append(name)
        return [STUDY, *(name for name in owned[:MAX_LISTED] if name != STUDY)]

    def find(self, name: str) -> Shown:
        """Return a set by name, and open it if necessary. Raises SetError, OutputError."""
        with self._lock:
            known = self._open.get(name)
            if known is not None:
                self._open.move_to_end(name)
                return known
        path = self._path(name)
        try:
            opened = Shown(name, ReviewSet.open(path))
        except SetError as error:
            log.error("%s", error)
            raise SetError(UNREADABLE.format(name)) from error
        with self._lock:
            self._open[name] = opened
            while len(self._open) > MAX_OPEN:
                self._open.popitem(last=False)
        return opened

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
        """Return the name and the new folder of a visitor's set. Without a name, an unguessable one
        is generated.

        The folder is deleted when the program ends. If an address has too many sets, its oldest set
        is evicted; if there are too many in total, the oldest set of the address with the most sets
        is evicted.
        """
        name = name or VISITORS + secrets.token_urlsafe(16)
        with self._lock:
            self._visitor_folder = self._visitor_folder or tempfile.TemporaryDirectory(
                prefix="mars-review-"
            )
            folder = Path(tempfile.mkdtemp(dir=self._visitor_folder.name))
            self._visitors[name] = VisitorSet(folder, address)
            while old := self._surplus(name, address):
                self._open.pop(old, None)
                shutil.rmtree(self._visitors.pop(old).folder, ignore_errors=True)
        return name, folder

    def _surplus(self, name: str, address: str) -> str:
        """Return the name of a visitor's set to evict, or "" if none has to be evicted. Never
        returns ``name`` or a set that is still being created.
        """
        counts = Counter(visitor.address for visitor in self._visitors.values())
        idle = [key for key in self._visitors if key != name and key not in self._held]
        of_address = [key for key in idle if self._visitors[key].address == address]
        if counts[address] > MAX_OF_ONE and of_address:
            return of_address[0]
        if len(self._visitors) <= MAX_VISITORS or not idle:
            return ""
        return max(idle, key=lambda key: counts[self._visitors[key].address])

    @contextmanager
    def held(self, name: str) -> Iterator[None]:
        """Prevent a visitor's set from being evicted inside the ``with`` block."""
        with self._lock:
            self._held.add(name)
        try:
            yield
        finally:
            with self._lock:
                self._held.discard(name)

    def folder(self, name: str) -> Path:
        """Return the folder of a visitor's set. Raises SetError if it was evicted."""
        if name not in self._visitors:
            raise SetError(GONE)
        return self._visitors[name].folder

    def forget(self, name: str) -> None:
        """Drop a changed set from memory, so that the next use reads it again."""
        with self._lock:
            self._open.pop(name, None)

    def sealed(self, name: str) -> str:
        """Return a visitor's set in the sealed form that the browser stores. Raises SetError."""
        set_folder = self.folder(name)
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "set.tar.xz"
            ReviewSet.open(set_folder).pack(packed, QUICK)
            body = base64.b64encode(packed.read_bytes()).decode()
        text = seal(self.secret, {"name": name, "archive": body})
        if len(text) > MAX_SEALED:
            raise SetError(LARGE)
        return text

    def bring(self, text: str, address: str = "") -> str:
        """Unpack a sealed set that a browser stored, and return its name. Raises SealError,
        SetError, OSError.
        """
        fields = as_mapping(unseal(self.secret, text))
        name = as_text(fields["name"])
        if name in self._visitors:
            return name
        with tempfile.TemporaryDirectory() as folder:
            packed = Path(folder) / "set.tar.xz"
            packed.write_bytes(base64.b64decode(as_text(fields["archive"])))
            try:
                unpack(packed, self.place(name, address)[1])
            except OSError:
                # The disk may be full. The browser still has the set and can send it again.
                self._drop(name)
                raise
            except ValueError as error:
                self._drop(name)
                raise SetError("This set is damaged. Create it again.") from error
        return name

    def _drop(self, name: str) -> None:
        with self._lock:
            self._open.pop(name, None)
            shutil.rmtree(self._visitors.pop(name).folder, ignore_errors=True)

    def masked(self, name: str, pair: Pair) -> dict[str, Any]:
        """Return the prompts for a comparison of two hidden methods, and for each prompt whether
        the two methods gave equal answers.
        """
        review = self.find(name).review
        _check_pair(review, pair)
        items = []
        for number, item in enumerate(review.items):
            texts = {_text(review, number, method) for method in pair}
            items.append({**_listed(review, number), "id": item.id, "same": len(texts) == 1})
        return {**_head(name, review), "items": items, "marks": []}

    def masked_item(self, name: str, pair: Pair, number: int) -> dict[str, Any]:
        """Return a prompt with its left and right answers, and a sealed record of which method is
        on which side. Raises SetError.
        """
        review = self.find(name).review
        _check_pair(review, pair)
        _check_item(review, number)
        item = review.items[number]
        names = {review.about.methods[method].name: method for method in pair}
        drawn = sides(self.secret, review.id, item.id, sorted(names))
        left, right = (_text(review, number, names[side]) for side in drawn)
        sealed = {"set": review.id, "item": item.id, "left": drawn[0], "right": drawn[1]}
        return {
            **_asked(review, number),
            "left": left,
            "right": right,
            "sealed": self._seal(sealed),
        }

    def _seal(self, sides: Mapping[str, str]) -> str:
        return seal(self.secret, sides)

    def reveal(self, name: str, texts: Iterable[Any]) -> list[dict[str, str]]:
        """Return which method was on which side, for each sealed record. Raises SetError,
        SealError.
        """
        review = self.find(name).review
        opened = []
        for text in texts:
            budget.check()
            opened.append(_sides(self._opened(review, as_text(text))))
        return opened

    def _opened(self, review: ReviewSet, text: str) -> Mapping[str, Any]:
        fields = as_mapping(unseal(self.secret, text))
        if fields.get("set") != review.id:
            raise SetError("The left and right sides belong to another set. Reload the page.")
        return fields

    def read_row(self, name: str, value: Any) -> Judgement:
        """Validate a judgement from a page, whose sides may be sealed. Raises SetError, SealError,
        JudgementError.
        """
        return self._read_row(self.find(name), value)

    def _read_row(self, shown: Shown, value: Any) -> Judgement:
        fields = dict(as_mapping(value))
        if "sealed" in fields:
            opened = self._opened(shown.review, as_text(fields.pop("sealed")))
            if opened["item"] != fields.get("item"):
                raise JudgementError(OTHER_PROMPT)
            fields |= _sides(opened)
        fields.pop("pair", None)
        row = read_judgement(fields)
        if row.item not in shown.item_ids:
            raise JudgementError(
                "A judgement names a prompt that this set does not have. Reload the page."
            )
        if not {row.left, row.right} <= shown.method_names:
            raise JudgementError(
                "A judgement names a method that this set does not have. Reload the page."
            )
        return row

    def read_rows(self, name: str, values: Any) -> list[Judgement]:
        """Validate several judgements. Raises the same errors as ``read_row``."""
        rows = as_list(values)
        if len(rows) > MAX_ROWS:
            raise JudgementError(f"Send at most {MAX_ROWS:,} judgements at a time.")
        shown = self.find(name)
        judgements = []
        for row_value in rows:
            budget.check()
            judgements.append(self._read_row(shown, row_value))
        return judgements

    def keep(self, name: str, value: Any) -> dict[str, Any]:
        """Store a judgement on disk. Return it in the form in which the page sent it, with sealed
        sides if they were sealed.
        """
        row = self.read_row(name, value)
        stored = self.store.add(self.find(name).review.id, row).as_json()
        return _resealed(stored, as_mapping(value).get("sealed"))

    def kept(self, name: str, is_masked: bool) -> list[dict[str, Any]]:
        """Return the stored judgements of a set. If ``is_masked``, the sides of masked judgements
        are sealed.
        """
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
        return figures(self.find(name).review, current(self.read_rows(name, rows)).values())

    def export(self, name: str, form: str, rows: Any, method: int = 0) -> str:
        """Return the text of a file with the set and these judgements. Raises SetError if the
        format is unknown.
        """
        review, read = self.find(name).review, self.read_rows(name, rows)
        if form == "csv":
            return exports.to_csv(review, read, MAX_EXPORT_CHARS)
        if form == "jsonl":
            return exports.to_jsonl(review, read)
        if form == "html":
            return exports.to_html(review, read)
        if form == "comparator" and method in review.about.others:
            return exports.to_comparator(review, read, method)
        raise SetError(NO_FORMAT)

    def merge(self, name: str, rows: Any, text: str) -> dict[str, Any]:
        """Merge the judgements of a page with those of a file. The message of a JudgementError
        names the line of the file.
        """
        shown = self.find(name)
        brought = exports.read_jsonl(text, shown.review.id)
        for row in brought:
            budget.check()
            self._read_row(shown, row.as_json())
        both = merged([self.read_rows(name, rows), brought])
        return {
            "rows": [row.as_json() for row in both.rows],
            "num_conflicts": both.num_conflicts,
            "num_brought": len(brought),
        }


VISITORS = "own-"
"""Prefix of the names of visitors' sets."""


@dataclass(frozen=True, slots=True)
class VisitorSet:
    folder: Path
    address: str


class Shown:
    """An opened set, and the responses made from it, which are compressed on first use and
    cached.
    """

    def __init__(self, name: str, review: ReviewSet) -> None:
        self.name = name
        self.review = review
        self.item_ids = frozenset(item.id for item in review.items)
        self.method_names = frozenset(method.name for method in review.about.methods)
        self._packed: dict[object, bytes] = {}

    def told(self) -> bytes:
        """Return the set's methods, prompts and automatic checks as gzipped JSON."""
        return self._once("", self._about)

    def item(self, number: int) -> bytes:
        """Return a prompt and all its answers as gzipped JSON. Raises SetError."""
        _check_item(self.review, number)
        return self._once(number, lambda: self._item(number))

    def trace(self, number: int, method: int) -> list[str]:
        """Return the lines of an answer's trace, or an empty list if the answer has only text.
        Raises SetError.
        """
        _check_item(self.review, number)
        _check_method(self.review, method)
        if not self.review.lines(number, method):
            return []
        return list(self.review.trace(number, method).lines())

    def _once(self, key: object, make: Callable[[], Any]) -> bytes:
        packed = self._packed.get(key)
        if packed is None:
            text = json.dumps(make(), ensure_ascii=False, separators=(",", ":"))
            packed = self._packed[key] = gzip.compress(text.encode(), 6)
        return packed

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
        """Return the automatic checks of each method's answer against the reference method's
        answer. An entry is None if one of the two answers is missing.
        """
        review = self.review
        reference = review.answer(number, review.about.reference)
        marked: list[dict[str, Any] | None] = []
        for method in range(len(review.about.methods)):
            answer = review.answer(number, method)
            if answer is None or reference is None:
                marked.append(None)
                continue
            checks = asdict(marks(answer, reference))
            difference = checks.pop("difference")
            word = None if difference is None else difference["word"]
            marked.append({**checks, "word": word, "num_tokens": answer.num_tokens})
        return marked

    def _item(self, number: int) -> dict[str, Any]:
        answers = [
            self.review.answer(number, method) for method in range(len(self.review.about.methods))
        ]
        return {
            **_asked(self.review, number),
            "answers": [None if answer is None else answer.as_json() for answer in answers],
            "marks": self._marks(number),
        }


def _head(name: str, review: ReviewSet) -> dict[str, Any]:
    """Return the description of a set, without prompts and answers."""
    about = review.about
    return {
        "address": name,
        "id": review.id,
        "name": about.name,
        "reference": about.reference,
        "ways": [method.as_json() for method in about.methods],
        "made": dict(about.made),
    }


def _listed(review: ReviewSet, number: int) -> dict[str, Any]:
    """Return what a list shows about a prompt: its category and its beginning."""
    item = review.items[number]
    return {"category": item.category, "head": " ".join(item.prompt[: 2 * HEAD].split())[:HEAD]}


def _asked(review: ReviewSet, number: int) -> dict[str, Any]:
    """Return a prompt with its system prompt, earlier turns and reference answer. The solution that
    the prompt's checker uses is not included.
    """
    item = review.items[number]
    fields = {name: getattr(item, name) for name in ("id", "prompt", "system", "category")}
    return {**fields, "turns": item.turns, "reference": item.reference}


def _text(review: ReviewSet, number: int, method: int) -> str:
    answer = review.answer(number, method)
    if answer is None:
        raise SetError("An answer to this prompt is missing. Finish creating the set first.")
    return answer.text


def _sides(fields: Mapping[str, Any]) -> dict[str, str]:
    return {side: as_text(fields[side]) for side in ("left", "right")}


def _resealed(row: dict[str, Any], sealed: Any) -> dict[str, Any]:
    """Replace the left and right side of a judgement by their sealed record, if there is one. The
    names of the two methods are then sorted, so that their order reveals nothing.
    """
    if not sealed:
        return row
    fields = {name: value for name, value in row.items() if name not in ("left", "right")}
    return {**fields, "pair": sorted([row["left"], row["right"]]), "sealed": sealed}


def _check_item(review: ReviewSet, number: int) -> None:
    if not 0 <= number < len(review.items):
        raise SetError(NO_PROMPT)


def _check_method(review: ReviewSet, method: int) -> None:
    if not 0 <= method < len(review.about.methods):
        raise SetError(NO_PROMPT)


def _check_pair(review: ReviewSet, pair: Pair) -> None:
    for method in pair:
        _check_method(review, method)
    if pair[0] == pair[1]:
        raise SetError("Choose two different methods to compare.")
