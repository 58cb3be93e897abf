"""Creates review sets: from prompts, which the page's engines answer, with one thread per set; and
from existing answers, such as pinned runs or files of ``lm_eval --log_samples``.

When the engine shares its slots, a set in progress counts like any other run of its visitor.
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
from mars_runtime.outputs import OutputError
from mars_runtime.review import budget
from mars_runtime.review.making import Decoder, SetProgress, begin, make
from mars_runtime.review.methods import MAX_METHODS, MIN_METHODS, ReviewMethod, read_methods
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
from mars_runtime.settings import SettingsError

MAX_OWN_PROMPTS, MAX_OWN_METHODS = 20, 3
"""Maximum number of prompts and methods in a visitor's set."""
MAX_JOBS, MAX_OF_ONE, MAX_KEPT = 8, 1, 40
"""MAX_JOBS: maximum number of sets in progress. MAX_OF_ONE: maximum number of unfinished sets per
address. MAX_KEPT: maximum number of jobs in memory, including ended ones.
"""
AWAY_SECONDS = 120.0
"""A job is stopped if the visitor's page has not polled it for this time. Browsers let a page in
the background poll only once per minute.
"""
PAUSED_SECONDS = 5.0
"""If the time between two checks of a job is longer than this, the process was paused (SIGSTOP, a
frozen container). Normally there are several checks per second.
"""
MAX_TOKENS = 128
CAPPED = ("max_new_tokens", "block_size")
"""Settings whose limits depend on the page and the checkpoint."""
FULL = "The server is already creating other sets. Try again in a few minutes."
ONE = "You are already creating another set. Wait until it is done, or stop it."
FAULT = "An error on the server interrupted this set. Press Finish, or create the set again."
NO_JOB = "This set is no longer being created."
PAUSE_SECONDS = 0.2
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SetRequest:
    """A request to create a set. title: the set's name, as shown on the page."""

    title: str
    items: Sequence[Item]
    methods: tuple[ReviewMethod, ...]


@dataclass(slots=True)
class SetJob:
    """The creation of a set.

    state: making, paused, stopped, done or failed.
    seen: when the visitor's page last polled. checked: when ``is_left`` was last called.
    began, num_before: when the job started or resumed, and how many answers it had then.
    """

    name: str
    folder: Path
    asked: SetRequest
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
        return self.state in ("stopped", "done", "failed")

    def is_left(self) -> bool:
        """Whether the visitor's page has stopped polling. Time in which this process was paused
        does not count, because clients could not poll.
        """
        time_now = time.monotonic()
        if time_now - self.checked > PAUSED_SECONDS:
            self.seen += time_now - self.checked
        self.checked = time_now
        return time_now - self.seen > AWAY_SECONDS


class Making:
    """Creates sets: starts, pauses and stops jobs, and reports their progress."""

    def __init__(self, engines: Engines, library: Library) -> None:
        self._engines = engines
        self._library = library
        self._jobs: dict[str, SetJob] = {}
        self._lock = threading.Lock()

    def told(self, is_owner: bool) -> dict[str, Any]:
        """Return the limits of a new set and the checkpoints to choose from."""
        most = (MAX_PROMPTS, MAX_METHODS) if is_owner else (MAX_OWN_PROMPTS, MAX_OWN_METHODS)
        names = list(self._engines.entries)
        return {"prompts": most[0], "ways": most[1], "checkpoints": names, "isOwner": is_owner}

    def begin(self, posted: Mapping[str, Any], address: str, is_owner: bool) -> dict[str, Any]:
        """Start to create a set, or continue the set named in the posted value ``set``. Return the
        set's name and the faults in its prompts. Raises PromptError, SettingsError, SetError,
        RefusalError.
        """
        most = self.told(is_owner)
        name, folder, faults = "", Path(), list[str]()
        if "set" in posted:
            name, folder = str(posted["set"]), self._library.folder(str(posted["set"]))
            review = ReviewSet.open(folder)
            request = SetRequest(review.about.name, review.items, review.about.methods)
        else:
            items, faults = _items(posted)
            items = with_system(items, read_system(posted.get("system")))
            request = SetRequest(_name(posted), items, self._methods(posted, most["ways"]))
        if len(request.items) > most["prompts"]:
            raise PromptError(
                f"Enter at most {most['prompts']} prompts (you entered {len(request.items)})."
            )
        _check_number(len(request.methods), most["ways"])
        self._check_caps(request)
        with self._lock:
            active = self._active_jobs()
            is_going = any(job.name == name for job in active)
            if is_going or sum(job.address == address for job in active) >= MAX_OF_ONE:
                raise SetError(ONE)
            self._check_capacity()
            if not name:
                name, folder = self._library.place(address=address)
            job = self._jobs[name] = SetJob(name, folder, request, address)
            job.progress = SetProgress(0, len(request.items) * len(request.methods))
            for old in list(self._jobs)[:-MAX_KEPT]:
                if self._jobs[old].is_over:
                    del self._jobs[old]
        threading.Thread(target=self._run, args=[job], name="review set", daemon=True).start()
        return {"name": name, "faults": faults}

    def _active_jobs(self) -> list[SetJob]:
        """Return the jobs in progress or paused. Stops jobs whose page no longer polls them."""
        for job in self._jobs.values():
            if not job.is_over and job.is_left():
                job.state = "stopped"
        return [job for job in self._jobs.values() if not job.is_over]

    def _check_capacity(self) -> None:
        """Raise SetError if no further set can be started now. Paused jobs do not count."""
        if sum(job.state == "making" for job in self._active_jobs()) >= MAX_JOBS:
            raise SetError(FULL)

    def _check_caps(self, request: SetRequest) -> None:
        """Check the prompts and settings against the limits of a run. Raises RefusalError if one of
        them exceeds a limit.
        """
        for method in request.methods:
            limits = self._engines.limits(method.checkpoint)
            for name in CAPPED if method.settings is not None else ():
                read_setting(name, getattr(method.settings, name), limits)
            for number, item in enumerate(request.items, 1):
                try:
                    read_prompt(item.prompt, limits)
                except RefusalError as refusal:
                    raise RefusalError("prompts", f"Prompt {number}: {refusal}") from None

    def _methods(self, posted: Mapping[str, Any], most: int) -> tuple[ReviewMethod, ...]:
        """Parse the posted methods. Raises SettingsError."""
        words = posted.get("ways")
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise SettingsError("Each method must be text.")
        _check_number(len(words), most)
        limit = posted.get("max_new_tokens", MAX_TOKENS)
        if type(limit) is not int or not 1 <= limit <= self._engines.settings.max_new_tokens:
            raise SettingsError("Choose one of the token limits that this page offers.")
        checkpoint = str(posted.get("checkpoint") or self._engines.default)
        return read_methods(words, checkpoint, max_new_tokens=limit)

    def progress(self, name: str) -> dict[str, Any]:
        """Return the progress of a set. seconds_left: an estimate, or None before the first
        answer.
        """
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
        """Pause, resume or stop a job. Raises SetError if it cannot be resumed now."""
        job = self._jobs.get(name)
        states = {"pause": "paused", "resume": "making", "stop": "stopped"}
        with self._lock:
            if job is not None and not job.is_over and isinstance(do, str) and do in states:
                if do == "resume" and job.state == "paused":
                    self._check_capacity()
                    job.began, job.num_before = time.monotonic(), job.progress.num_done
                job.state = states[do]
        return self.progress(name)

    def _run(self, job: SetJob) -> None:
        try:
            with self._library.held(job.name):
                request = job.asked
                review = begin(
                    job.folder, request.title, request.items, request.methods, self._decoder
                )
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
            log.error("an unfinished set cannot be stored: %s", error)
            job.error, job.state = UNSTORED, "failed"
        except (SetError, RefusalError, UnavailableError, EngineError) as error:
            job.error, job.state = str(error), "failed"
        except Exception as error:
            log.error("creating a set failed: %s", where(error))
            job.error, job.state = FAULT, "failed"
        finally:
            self._library.forget(job.name)

    def _work(self, job: SetJob, review: ReviewSet) -> None:
        """Decode until the set is done, paused or stopped. Finished answers are stored; unfinished
        ones are dropped.
        """
        work = make(review, self._decoder, job.address, self._engines.settings.max_seconds)
        for progress in work:
            job.progress = progress
            if job.state != "making" or job.is_left():
                work.close()  # type: ignore[attr-defined]
                return
        job.state = "done"

    def _decoder(self, name: str) -> Decoder:
        served = self._engines.get(name)
        assert served is not None, "get without a timeout waits until the checkpoint is loaded"
        return Decoder.of(served.engine, served.checkpoint)

    def bring(self, posted: Mapping[str, Any], address: str) -> dict[str, Any]:
        """Create a set from existing answers: ``pins`` (texts of traces) or ``samples`` (files of
        lm_eval, one per method). Raises SetError, PromptError, TraceError.
        """
        most = self._engines.settings.max_import_bytes
        existing = (
            _of_pins(posted["pins"], most, address) if "pins" in posted else _of_samples(posted)
        )
        items, methods, answers = existing
        name, folder = self._library.place(address=address)
        review = ReviewSet.create(folder, SetDescription(_name(posted), methods, 0, {}), items)
        for (item, method), answer in answers.items():
            if isinstance(answer, str):
                review.add_text(item, method, answer)
            else:
                review.add_trace(item, method, answer)
        review.summarize()
        return {"name": name}


Answers = dict[tuple[int, int], str | list[str]]
"""Answers by (prompt, method): a text, or the lines of a trace."""


def _name(posted: Mapping[str, Any]) -> str:
    name = posted.get("name")
    return name.strip()[:MAX_NAME] if isinstance(name, str) and name.strip() else "a set"


def _items(posted: Mapping[str, Any]) -> tuple[list[Item], list[str]]:
    """Return the prompts, and a fault for each unusable line. Raises PromptError."""
    if source := posted.get("source"):
        return bundled(str(source)), []
    text = posted.get("prompts")
    if not isinstance(text, str):
        raise PromptError("The prompts must be text, CSV, TSV or JSON.")
    prompts = read_prompts(text, name=str(posted.get("file", ""))[:200])
    return prompts.items, [str(fault) for fault in prompts.faults]


def _check_number(num_methods: int, most: int) -> None:
    """Check the number of methods. Raises SettingsError."""
    if not MIN_METHODS <= num_methods <= most:
        raise SettingsError(f"Choose {MIN_METHODS} to {most} methods, got {num_methods}.")


def _of_pins(
    pins: Any, max_chars: int, address: str
) -> tuple[list[Item], tuple[ReviewMethod, ...], Answers]:
    """Return pinned runs as a set with one item per distinct prompt, and one method per distinct
    settings.

    max_chars: maximum length of a run. address: the client's address, for the limit on concurrent
    readers.
    """
    if not isinstance(pins, list) or not 2 <= len(pins) <= MAX_OWN_PROMPTS * MAX_METHODS:
        raise SetError("Pin at least two runs of the same prompt first.")
    items: dict[str, Item] = {}
    methods: dict[str, ReviewMethod] = {}
    answers: Answers = {}
    for text in pins:
        read = read_import(text, max_chars, address)
        if "error" in read:
            raise SetError(read["error"])
        header = json.loads(read["lines"][0])
        item = items.setdefault(header["prompt"], Item(str(len(items) + 1), header["prompt"]))
        method = _method_of(header)
        methods.setdefault(method.name, method)
        position = list(items).index(item.prompt), list(methods).index(method.name)
        answers.setdefault(position, read["lines"])
    if not MIN_METHODS <= len(methods) <= MAX_METHODS:
        raise SetError(
            f"The pinned runs must use {MIN_METHODS} to {MAX_METHODS} different methods, got "
            f"{len(methods)}."
        )
    return list(items.values()), tuple(methods.values()), answers


def _method_of(header: Mapping[str, Any]) -> ReviewMethod:
    """Return a method with a name that describes the settings of a trace. It cannot decode, because
    the answer exists already.
    """
    settings, checkpoint = header["settings"], str(header["checkpoint"])
    words = ["ar"] if settings["method"] == "ar" else [f"tau={settings['tau']:g}"]
    words += ["lossless"] if settings.get("lossless") else []
    words += [f"B={settings['block_size']}"] if settings["method"] != "ar" else []
    return ReviewMethod(f"{','.join(words)},{checkpoint}"[:80])


def _of_samples(posted: Mapping[str, Any]) -> tuple[list[Item], tuple[ReviewMethod, ...], Answers]:
    """Return the files of ``lm_eval --log_samples``, one per method, as a set of the prompts that
    all files have.
    """
    files = posted.get("samples")
    if not isinstance(files, list) or not MIN_METHODS <= len(files) <= MAX_METHODS:
        raise SetError(f"Choose {MIN_METHODS} to {MAX_METHODS} sample files, one for each method.")
    read: dict[str, dict[str, str]] = {}
    for number, file in enumerate(files, 1):
        name = str(file.get("name", ""))[:80] if isinstance(file, dict) else ""
        name = name or f"method {number}"
        if not isinstance(file, dict) or not isinstance(file.get("text"), str) or name in read:
            raise SetError("Each sample file must be text and have a unique name.")
        read[name] = _samples(name, file["text"])
    shared = [
        prompt for prompt in next(iter(read.values())) if all(prompt in f for f in read.values())
    ]
    if not shared:
        raise SetError(
            "These files have no prompt in common. Choose sample files of the same task."
        )
    items = [Item(str(n), prompt) for n, prompt in enumerate(shared[:MAX_PROMPTS], 1)]
    answers: Answers = {
        (n, method): by_prompt[item.prompt]
        for n, item in enumerate(items)
        for method, by_prompt in enumerate(read.values())
    }
    return items, tuple(ReviewMethod(name) for name in read), answers


def _samples(name: str, text: str) -> dict[str, str]:
    """Return the answers of a file by prompt. The message of a SetError names the line."""
    answers: dict[str, str] = {}
    for number, sample in json_records(text.removeprefix("\ufeff")):
        budget.check()
        try:
            arguments = sample["arguments"]
            first = (
                arguments["gen_args_0"]["arg_0"] if isinstance(arguments, dict) else arguments[0][0]
            )
            answer = sample["resps"][0]
            answer = answer[0] if isinstance(answer, list) else answer
            if not isinstance(first, str) or not isinstance(answer, str) or not first.strip():
                raise TypeError
            first.encode(), answer.encode()
        except (ValueError, KeyError, TypeError, IndexError, RecursionError):
            raise SetError(
                f"{name}, line {number} is not an lm_eval sample with a text answer. Choose a file "
                "that lm_eval wrote with --log_samples."
            ) from None
        answers.setdefault(first[:8000], answer)
    return answers
