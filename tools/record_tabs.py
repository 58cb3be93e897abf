"""Record the results that tabs show when they open, what Run shows with the initial values of the
page: ``python -m tools.record_tabs``. In the run of Throughput, τ moves once. Use a quiet machine,
because the results are shown as measured."""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections.abc import Mapping
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from app.engines.engines import Engines
from app.handlers import Handlers, make_handlers
from app.page import build
from app.settings import AppSettings
from app.throughput.run import NUM_QUEUED
from app.ui.recordings import FOLDER, TABS, tab_file
from app.ui.stream import TabHandlers
from mars_runtime.files.json_values import json_line
from mars_runtime.files.outputs import check_folder, path_of
from mars_runtime.model.load import choose_device
from mars_runtime.system.machine import device_name
from tools.record_runs import RecordingError, busy_machine_reported

CHECKPOINT = "mars-smollm2"
WAITING = re.compile(r'"waiting":(\d+)')
MAX_SECONDS = 1800.0  # time limit of a result
MOVED_TAU = 0.5  # τ in the second half of Throughput's queue


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.record_tabs", description=__doc__)
    parser.add_argument("--out", type=path_of, default=FOLDER, help="folder to write (%(default)s)")
    parser.add_argument("--tab", choices=TABS, help="record only this one (all)")
    args = parser.parse_args()
    check_folder(args.out)
    settings = AppSettings(checkpoint=CHECKPOINT, max_seconds=MAX_SECONDS)
    with busy_machine_reported(), closing(Engines(settings)) as engines:
        served = engines.get(CHECKPOINT)
        assert served is not None, "without a time limit, get returns the engine"
        served.engine.costs()  # waits for the warm-up
        handlers = make_handlers(engines)
        values = opening_values(handlers)
        for tab in [args.tab] if args.tab else TABS:
            lines = recorded(handlers, tab, values)
            print(write(args.out, tab, lines), flush=True)
    return 0


def opening_values(handlers: Handlers) -> dict[str, Any]:
    parts = build(handlers).blocks.values()
    named = {part.elem_id: part for part in parts if part.elem_id}
    return {name: part.value for name, part in named.items() if hasattr(part, "value")}


def recorded(handlers: Handlers, tab: str, values: Mapping[str, Any]) -> str:
    """Run a tab and return all lines of its log. Raises RecordingError."""
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


def write(folder: Path, tab: str, lines: str) -> Path:
    head, _, rest = lines.partition("\n")
    date = datetime.now(timezone.utc).date().isoformat()
    made = {
        "run": f"recorded-{tab}",
        "recorded": f"{date}, on {device_name(choose_device('auto'))}",
    }
    text = f"{json_line({**json.loads(head), **made})}\n{rest}"
    path = tab_file(tab, folder)
    path.write_bytes(gzip.compress(text.encode(), mtime=0))
    return path


if __name__ == "__main__":
    sys.exit(main())
