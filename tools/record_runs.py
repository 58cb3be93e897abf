"""Record the runs and results that pages show without a server: ``python -m tools.record_runs``.

Use a quiet machine, because the recordings are shown as measured.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from app.engines.engines import Engines, LoadedModel
from app.handlers import Handlers, make_handlers
from app.live.lanes import LiveRun
from app.live.order import LiveOrder
from app.page import build
from app.settings import AppSettings
from app.throughput.run import NUM_QUEUED
from app.ui.controls import DEFAULTS, RACE
from app.ui.examples import ExampleBook
from app.ui.recordings import FOLDER, INDEX, TABS, tab_file
from app.ui.stream import TabHandlers
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.engine.engine import Engine
from mars_runtime.files.json_values import json_line
from mars_runtime.files.outputs import OutputError, check_folder, path_of
from mars_runtime.model.config import CheckpointError
from mars_runtime.model.load import choose_device, load_checkpoint
from mars_runtime.model.registry import entry_of, unlisted_entry
from mars_runtime.review.sets import rounded
from mars_runtime.settings import DecodeSettings
from mars_runtime.system.machine import device_name, num_cores
from mars_runtime.system.provenance import Others, Quiet

SOURCE = Path(__file__).with_name("scenarios.json")
CHECKPOINT = "mars-smollm2"
ROUNDS = 3
MAX_SECONDS = 1800.0
MOVED_TAU = 0.5  # τ in the second half of Throughput's queue
WAITING = re.compile(r'"waiting":(\d+)')


@dataclass(frozen=True, slots=True)
class Scenario:
    """Example number ``number`` of ``family``. settings: the page's, unless given."""

    name: str
    title: str
    why: str
    family: str
    number: int
    checkpoint: str = CHECKPOINT
    settings: DecodeSettings = DEFAULTS
    lanes: tuple[str, ...] = RACE

    @classmethod
    def of(cls, entry: dict[str, Any]) -> Scenario:
        settings = {"settings": DecodeSettings(**entry["settings"])} if "settings" in entry else {}
        return cls(**{**entry, **settings, "lanes": tuple(entry.get("lanes", RACE))})


SCENARIOS = tuple(map(Scenario.of, json.loads(SOURCE.read_text(encoding="utf-8"))))
"""The page opens with the first one and then shows the second one, which is the first example with
the page's initial settings, so Run repeats it. Their reasons contain no figures."""


class RecordingError(RuntimeError): ...


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.record_runs", description=__doc__)
    add = parser.add_argument
    add("--out", type=path_of, default=FOLDER, help="folder to write (%(default)s)")
    names = [*(scenario.name for scenario in SCENARIOS), *TABS]
    add("--only", choices=names, help="record only this scenario or tab (default: all)")
    args = parser.parse_args()
    try:
        check_folder(args.out)
        with busy_machine_reported():
            scenarios = [scenario for scenario in SCENARIOS if args.only in (None, scenario.name)]
            write_runs(args.out, scenarios)
            write_tabs(args.out, [tab for tab in TABS if args.only in (None, tab)])
    except (CheckpointError, OutputError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


@contextmanager
def busy_machine_reported() -> Iterator[None]:
    load, others = os.getloadavg()[0], Others()
    yield
    for doubt in Quiet(num_cores(), load, others.share(), None).doubts:
        print(f"Record again on a quiet machine: {doubt}.", file=sys.stderr)


def write_runs(folder: Path, scenarios: Sequence[Scenario]) -> None:
    """Record the scenarios; write the index last. It keeps the entries of other recordings."""
    folder.mkdir(parents=True, exist_ok=True)
    index = folder / INDEX
    entries = json.loads(index.read_text(encoding="utf-8")) if index.exists() else []
    by_name = {entry["name"]: entry for entry in entries}
    for scenario in scenarios:
        checkpoint = load_checkpoint(scenario.checkpoint)
        entry = entry_of(scenario.checkpoint) or unlisted_entry(scenario.checkpoint)
        # Rounds repeat the prompt; each has to prefill it like the first.
        with Engine(CheckpointBackend(checkpoint, keeps=False)) as engine:
            value, about = recorded(LoadedModel(entry, checkpoint, engine), scenario)
        (folder / f"{scenario.name}.txt").write_text(value, encoding="utf-8")
        by_name[scenario.name] = about
        print(folder / f"{scenario.name}.txt", flush=True)
    if scenarios:
        text = json.dumps(list(by_name.values()), ensure_ascii=False, indent=2)
        index.write_text(text + "\n", encoding="utf-8")


def recorded(served: LoadedModel, scenario: Scenario) -> tuple[str, dict[str, Any]]:
    """Run the scenario three times at full speed, after a warm-up. Return the value of the view for
    the run with the median time, which a single slow moment does not change, and the entry of the
    index. Raises RecordingError."""
    book = ExampleBook()
    prompt = book.prompt(scenario.family, scenario.number)
    order = LiveOrder.model_construct(
        settings=scenario.settings, prompt=prompt, view=list(scenario.lanes)
    )
    rounds = []
    for _ in range(1 + ROUNDS):
        run = LiveRun(order, book, MAX_SECONDS)
        for _ in run.decode(served):
            pass
        if not all(lane.is_done for lane in run.transcripts):
            raise RecordingError(f"{scenario.name} ended early: {run.log.whole()[-300:]}")
        rounds.append(run)
    rounds[1:] = sorted(rounds[1:], key=lambda run: sum(lane.run.clock for lane in run.transcripts))
    head, *lines = rounds[1 + ROUNDS // 2].log.whole().splitlines()
    tagged = [line.partition("\t") for line in lines]
    kept = [
        f"{tag}\t{json_line(rounded(json.loads(data)))}\n"
        for tag, _, data in tagged
        if tag in (*order.lanes, "verdict")
    ]
    settings = {name: asdict(settings) for name, settings in order.lanes.items()}
    about = {"name": scenario.name, "title": scenario.title, "why": scenario.why}
    value = headed(head, scenario.name) + "".join(kept)
    return value, {**about, "prompt": prompt, "settings": settings}


def headed(head: str, name: str) -> str:
    """Return the first line of a log, with the marks of a recording."""
    date = datetime.now(timezone.utc).date().isoformat()
    note = f"{date}, on {device_name(choose_device('auto'))}"
    return json_line({**json.loads(head), "run": f"recorded-{name}", "recorded": note}) + "\n"


def write_tabs(folder: Path, tabs: Sequence[str]) -> None:
    """Record what Run of these tabs shows with the initial values of the page."""
    if not tabs:
        return
    settings = AppSettings(checkpoint=CHECKPOINT, max_seconds=MAX_SECONDS)
    with closing(Engines(settings)) as engines:
        served = engines.get(CHECKPOINT)
        assert served is not None, "without a time limit, get returns the engine"
        served.engine.costs()  # waits for the warm-up
        handlers = make_handlers(engines)
        parts = build(handlers).blocks.values()
        named = {part.elem_id: part for part in parts if part.elem_id}
        values = {name: part.value for name, part in named.items() if hasattr(part, "value")}
        for tab in tabs:
            head, _, rest = result(handlers, tab, values).partition("\n")
            text = headed(head, tab) + rest
            tab_file(tab, folder).write_bytes(gzip.compress(text.encode(), mtime=0))
            print(tab_file(tab, folder), flush=True)


def result(handlers: Handlers, tab: str, values: Mapping[str, Any]) -> str:
    """Run a tab and return all lines of its log; in Throughput, τ moves once. Raises
    RecordingError."""
    tabs: dict[str, TabHandlers[Any]] = {"throughput": handlers.throughput, "grid": handlers.grid}
    tab_values = {name.removeprefix(f"{tab}-"): value for name, value in values.items()}
    moved, run, is_begun = {**tab_values, "tau": MOVED_TAU}, "", False
    for value in tabs[tab].run("recorder", tab_values):
        run = json.loads(value.splitlines()[0])["run"]
        _, begun, rest = value.rpartition('"method":"mars"')
        is_begun |= bool(begun)
        waiting = WAITING.findall(rest) if tab == "throughput" and is_begun else []
        if waiting and int(waiting[-1]) <= NUM_QUEUED // 2:
            handlers.throughput.steer("recorder", moved)
    lines = handlers.logs.missed(run)
    if '"kind":"finished"' not in lines:
        raise RecordingError(f"The run of {tab} did not finish: {lines[-300:]}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
