"""Sets that a page makes: of prompts that somebody brings, in the engines that serve everybody, one
thread for each; and of answers that are there already, such as runs pinned in the Compare tab and
what ``lm_eval --log_samples`` wrote.

A visitor's places are those of any other run of theirs: the engine deals them out by address. Knows
no route and no gradio.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from app.engines.engines import Engines, UnavailableError
from app.engines.limits import RefusalError
from app.review.library import UNSTORED, Library
from app.ui.controls import read_prompt, read_setting, read_system
from app.ui.imported_runs import read_import
from mars_runtime.engine.backend import where
from mars_runtime.engine.engine import EngineError
from mars_runtime.engine.header import Facts
from mars_runtime.outputs import OutputError
from mars_runtime.review import budget
from mars_runtime.review.making import Decoder, SetProgress, begin, make
from mars_runtime.review.prompts import (
    MAX_PROMPTS,
    Item,
    PromptError,
    bundled,
    json_records,
    read_prompts,
    with_system,
)
from mars_runtime.review.sets import MAX_NAME, ReviewSet, SetDescription, SetError
from mars_runtime.review.ways import MAX_WAYS, MIN_WAYS, ReviewMethod, read_ways
from mars_runtime.settings import SettingsError

MAX_OWN_PROMPTS, MAX_OWN_WAYS = 20, 3
"""Of a visitor's set."""
MAX_JOBS, MAX_OF_ONE, MAX_KEPT = 8, 1, 40
"""Sets that are being made, unfinished ones of one address, and those that are known at all."""
AWAY_SECONDS = 120.0
"""After which a set is stopped whose owner's page asks for it no more. A browser lets a page in the
background ask once a minute."""
PAUSED_SECONDS = 5.0
"""Between two checks of a set in the making, which come several times a second: a longer gap is a
pause of the process (SIGSTOP, a frozen container)."""
MAX_TOKENS = 128
CAPPED = ("max_new_tokens", "block_size")
"""Settings whose ranges depend on the page and the checkpoint."""
FULL = "Other sets are being made just now: try again in a while."
ONE = "A set of yours is being made: wait for it, or stop it."
FAULT = "The server failed while it made this set: make the rest, or make it again."
NO_JOB = "This set is not being made any more."
PAUSE_SECONDS = 0.2
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a set is to be made of. title: what people call it."""

    title: str
    items: Sequence[Item]
    ways: tuple[ReviewMethod, ...]


@dataclass(slots=True)
class SetJob:
    """A set in the making. state: making, paused, stopped, done or failed."""

    name: str
    folder: Path
    asked: Asked
    address: str
    state: str = "making"
    progress: SetProgress = field(default_factory=lambda: SetProgress(0, 0))
    error: str = ""
    began: float = field(default_factory=time.monotonic)
    seen: float = field(default_factory=time.monotonic)
    checked: float = field(default_factory=time.monotonic)
    num_before: int = 0

    @property
    def is_over(self) -> bool:
        """Whether nothing is done for it any more."""
        return self.state in ("stopped", "done", "failed")

    def is_left(self) -> bool:
        """Whether its owner's page has asked for it no more for a while. A pause of the process
        does not count: its clients could not ask."""
        now = time.monotonic()
        if now - self.checked > PAUSED_SECONDS:
            self.seen += now - self.checked
        self.checked = now
        return now - self.seen > AWAY_SECONDS


class Making:
    """Begins, steers and tells of them."""

    def __init__(self, engines: Engines, library: Library) -> None:
        self._engines = engines
        self._library = library
        self._jobs: dict[str, SetJob] = {}
        self._lock = threading.Lock()

    def told(self, is_owner: bool) -> dict[str, Any]:
        """What may be made."""
        most = (MAX_PROMPTS, MAX_WAYS) if is_owner else (MAX_OWN_PROMPTS, MAX_OWN_WAYS)
        names = list(self._engines.entries)
        return {"prompts": most[0], "ways": most[1], "checkpoints": names, "isOwner": is_owner}

    def begin(self, told: Mapping[str, Any], address: str, is_owner: bool) -> dict[str, Any]:
        """Begin one, or go on with that which ``set`` names; its name and what is wrong with lines
        of its prompts. Raises PromptError, SettingsError, SetError, RefusalError."""
        most = self.told(is_owner)
        name, folder, faults = "", Path(), list[str]()
        if "set" in told:
            name, folder = str(told["set"]), self._library.folder(str(told["set"]))
            review = ReviewSet.open(folder)
            asked = Asked(review.about.name, review.items, review.about.ways)
        else:
            items, faults = _items(told)
            items = with_system(items, read_system(told.get("system")))
            asked = Asked(_name(told), items, self._ways(told, most["ways"]))
        if len(asked.items) > most["prompts"]:
            raise PromptError(
                f"Give at most {most['prompts']} prompts: these are {len(asked.items)}."
            )
        _check_number(len(asked.ways), most["ways"])
        self._check_caps(asked)
        with self._lock:
            going = self._going()
            is_going = any(job.name == name for job in going)
            if is_going or sum(job.address == address for job in going) >= MAX_OF_ONE:
                raise SetError(ONE)
            self._check_place()
            if not name:
                name, folder = self._library.place(address=address)
            job = self._jobs[name] = SetJob(name, folder, asked, address)
            job.progress = SetProgress(0, len(asked.items) * len(asked.ways))
            for old in list(self._jobs)[:-MAX_KEPT]:
                if self._jobs[old].is_over:
                    del self._jobs[old]
        threading.Thread(target=self._run, args=[job], name="review set", daemon=True).start()
        return {"name": name, "faults": faults}

    def _going(self) -> list[SetJob]:
        """The sets that are made or paused; those that were left are stopped first."""
        for job in self._jobs.values():
            if not job.is_over and job.is_left():
                job.state = "stopped"
        return [job for job in self._jobs.values() if not job.is_over]

    def _check_place(self) -> None:
        """Raise SetError where no further set can be made now. A paused one takes no place."""
        if sum(job.state == "making" for job in self._going()) >= MAX_JOBS:
            raise SetError(FULL)

    def _check_caps(self, asked: Asked) -> None:
        """Check prompts and ways as a run of the page, wherever they come from: words of a way and
        an imported set name settings too. Raises RefusalError."""
        for way in asked.ways:
            limits = self._engines.limits(way.checkpoint)
            for name in CAPPED if way.settings is not None else ():
                read_setting(name, getattr(way.settings, name), limits)
            for number, item in enumerate(asked.items, 1):
                try:
                    read_prompt(item.prompt, limits)
                except RefusalError as refusal:
                    raise RefusalError("prompts", f"Prompt {number}: {refusal}") from None

    def _ways(self, told: Mapping[str, Any], most: int) -> tuple[ReviewMethod, ...]:
        """Raises SettingsError."""
        words = told.get("ways")
        if not isinstance(words, list) or not all(isinstance(each, str) for each in words):
            raise SettingsError("Give ways of decoding as texts.")
        _check_number(len(words), most)
        limit = told.get("max_new_tokens", MAX_TOKENS)
        if type(limit) is not int or not 1 <= limit <= self._engines.settings.max_new_tokens:
            raise SettingsError("Choose a limit on tokens that this page has.")
        checkpoint = str(told.get("checkpoint") or self._engines.default)
        return read_ways(words, checkpoint, max_new_tokens=limit)

    def progress(self, name: str) -> dict[str, Any]:
        """How far a set is. seconds_left: by what was made since it began, None before that."""
        job = self._jobs.get(name)
        if job is None:
            return {
                "state": "gone",
                "error": NO_JOB,
                **asdict(SetProgress(0, 0)),
                "seconds_left": None,
            }
        done = job.progress.num_done - job.num_before
        if not job.is_over:
            job.seen = time.monotonic()
        left = job.progress.num_all - job.progress.num_done
        spent = time.monotonic() - job.began
        is_known = job.state == "making" and done > 0
        return {
            "state": job.state,
            "error": job.error,
            **asdict(job.progress),
            "seconds_left": round(spent / done * left) if is_known else None,
        }

    def steer(self, name: str, do: object) -> dict[str, Any]:
        """Pause, resume or stop one. Raises SetError where none can be made now."""
        job = self._jobs.get(name)
        states = {"pause": "paused", "resume": "making", "stop": "stopped"}
        with self._lock:
            if job is not None and not job.is_over and isinstance(do, str) and do in states:
                if do == "resume" and job.state == "paused":
                    self._check_place()
                    job.began, job.num_before = time.monotonic(), job.progress.num_done
                job.state = states[do]
        return self.progress(name)

    def _run(self, job: SetJob) -> None:
        try:
            with self._library.held(job.name):
                asked = job.asked
                review = begin(job.folder, asked.title, asked.items, asked.ways, self._decoder)
                job.num_before = job.progress.num_all - len(review.missing())
                job.began = time.monotonic()
                while not job.is_over:
                    if job.is_left():
                        job.state = "stopped"
                        return
                    if job.state == "paused":
                        time.sleep(PAUSE_SECONDS)
                        continue
                    self._work(job, review)
        except (OutputError, OSError) as error:
            log.error("a set in the making cannot be stored: %s", error)
            job.error, job.state = UNSTORED, "failed"
        except (SetError, RefusalError, UnavailableError, EngineError) as error:
            job.error, job.state = str(error), "failed"
        except Exception as error:
            log.error("a set in the making failed: %s", where(error))
            job.error, job.state = FAULT, "failed"
        finally:
            self._library.forget(job.name)

    def _work(self, job: SetJob, review: ReviewSet) -> None:
        """Until it is done, or somebody pauses or stops it: what is going on then is dropped, what
        is done is kept."""
        work = make(review, self._decoder, job.address, self._engines.settings.max_seconds)
        for progress in work:
            job.progress = progress
            if job.state != "making" or job.is_left():
                work.close()  # type: ignore[attr-defined]
                return
        job.state = "done"

    def _decoder(self, name: str) -> Decoder:
        served = self._engines.get(name)
        assert served is not None, "without a time limit it is waited for"
        about = served.about
        if isinstance(about, Facts):
            return Decoder.elsewhere(served.engine, served.checkpoint.tokenizer, about)
        return Decoder.here(served.engine, about)

    def bring(self, told: Mapping[str, Any], address: str) -> dict[str, Any]:
        """A set of answers that are there: ``pins`` (texts of traces) or ``samples`` (files of
        lm_eval by way). Raises SetError, PromptError, TraceError."""
        most = self._engines.settings.max_import_bytes
        found = _of_pins(told["pins"], most, address) if "pins" in told else _of_samples(told)
        items, ways, answers = found
        name, folder = self._library.place(address=address)
        review = ReviewSet.create(folder, SetDescription(_name(told), ways, 0, {}), items)
        for (item, way), answer in answers.items():
            if isinstance(answer, str):
                review.add_text(item, way, answer)
            else:
                review.add_trace(item, way, answer)
        review.summarize()
        return {"name": name}


Answers = dict[tuple[int, int], str | list[str]]
"""(item, way) -> a text, or the lines of a trace."""


def _name(told: Mapping[str, Any]) -> str:
    given = told.get("name")
    return given.strip()[:MAX_NAME] if isinstance(given, str) and given.strip() else "a set"


def _items(told: Mapping[str, Any]) -> tuple[list[Item], list[str]]:
    """Prompts and what is wrong with the lines that gave none. Raises PromptError."""
    if source := told.get("source"):
        return bundled(str(source)), []
    text = told.get("prompts")
    if not isinstance(text, str):
        raise PromptError("Give prompts as text, CSV, TSV or JSON.")
    found = read_prompts(text, name=str(told.get("file", ""))[:200])
    return found.items, [str(each) for each in found.faults]


def _check_number(num_ways: int, most: int) -> None:
    """Raises SettingsError."""
    if not MIN_WAYS <= num_ways <= most:
        raise SettingsError(f"Give {MIN_WAYS} to {most} ways of decoding.")


def _of_pins(
    pins: Any, max_chars: int, address: str
) -> tuple[list[Item], tuple[ReviewMethod, ...], Answers]:
    """Pinned runs as a set: a prompt for each that was asked, a way for each kind of settings.
    max_chars: of a run. address: the visitor's, whose places for reading are counted."""
    if not isinstance(pins, list) or not 2 <= len(pins) <= MAX_OWN_PROMPTS * MAX_WAYS:
        raise SetError("Pin at least two runs of one prompt first.")
    asked: dict[str, Item] = {}
    ways: dict[str, ReviewMethod] = {}
    answers: Answers = {}
    for text in pins:
        read = read_import(text, max_chars, address)
        if "error" in read:
            raise SetError(read["error"])
        header = json.loads(read["lines"][0])
        item = asked.setdefault(header["prompt"], Item(str(len(asked) + 1), header["prompt"]))
        way = _way(header)
        ways.setdefault(way.name, way)
        place = list(asked).index(item.prompt), list(ways).index(way.name)
        answers.setdefault(place, read["lines"])
    if not MIN_WAYS <= len(ways) <= MAX_WAYS:
        raise SetError(
            f"A set has {MIN_WAYS} to {MAX_WAYS} ways: the pinned runs have {len(ways)}."
        )
    return list(asked.values()), tuple(ways.values()), answers


def _way(header: Mapping[str, Any]) -> ReviewMethod:
    """Settings are told in the trace itself: what a machine chose needs not be repeatable here."""
    settings, checkpoint = header["settings"], str(header["checkpoint"])
    words = ["ar"] if settings["method"] == "ar" else [f"tau={settings['tau']:g}"]
    words += ["lossless"] if settings.get("lossless") else []
    words += [f"B={settings['block_size']}"] if settings["method"] != "ar" else []
    return ReviewMethod(f"{','.join(words)},{checkpoint}"[:80])


def _of_samples(told: Mapping[str, Any]) -> tuple[list[Item], tuple[ReviewMethod, ...], Answers]:
    """What ``lm_eval --log_samples`` wrote, a file for each way: prompts that all of them have."""
    files = told.get("samples")
    if not isinstance(files, list) or not MIN_WAYS <= len(files) <= MAX_WAYS:
        raise SetError(f"Give {MIN_WAYS} to {MAX_WAYS} files of samples, one for each way.")
    read: dict[str, dict[str, str]] = {}
    for number, file in enumerate(files, 1):
        name = str(file.get("name", ""))[:80] if isinstance(file, dict) else ""
        name = name or f"way {number}"
        if not isinstance(file, dict) or not isinstance(file.get("text"), str) or name in read:
            raise SetError("Each file of samples needs a name of its own and a text.")
        read[name] = _samples(name, file["text"])
    shared = [
        prompt for prompt in next(iter(read.values())) if all(prompt in f for f in read.values())
    ]
    if not shared:
        raise SetError("These files have no prompt in common: bring samples of one task.")
    items = [Item(str(n), prompt) for n, prompt in enumerate(shared[:MAX_PROMPTS], 1)]
    answers: Answers = {
        (n, way): found[item.prompt]
        for n, item in enumerate(items)
        for way, found in enumerate(read.values())
    }
    return items, tuple(ReviewMethod(name) for name in read), answers


def _samples(name: str, text: str) -> dict[str, str]:
    """Prompt -> answer. Raises SetError that names the line."""
    found: dict[str, str] = {}
    for number, told in json_records(text.removeprefix("\ufeff")):
        budget.check()
        try:
            arguments = told["arguments"]
            first = (
                arguments["gen_args_0"]["arg_0"] if isinstance(arguments, dict) else arguments[0][0]
            )
            answer = told["resps"][0]
            answer = answer[0] if isinstance(answer, list) else answer
            if not isinstance(first, str) or not isinstance(answer, str) or not first.strip():
                raise TypeError
            first.encode(), answer.encode()
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            raise SetError(
                f"{name}, line {number}: it is no sample of lm_eval with a text as its answer."
            ) from None
        found.setdefault(first[:8000], answer)
    return found
