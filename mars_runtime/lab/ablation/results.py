"""All results of a folder in one document, its tables and its picture. Knows files alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from mars_runtime.lab.ablation.chart import svg
from mars_runtime.lab.ablation.jobs import CHECKPOINTS, Plan
from mars_runtime.lab.ablation.report import markdown
from mars_runtime.outputs import write_text
from mars_runtime.provenance import provenance

NAME, LOGS = "ablations", "runs/*/log-*.jsonl"


def write_results(plan: Plan) -> None:
    """Gather what is finished, with where it comes from."""
    document = {
        **provenance(plan.start),
        "start": plan.start,
        "tokens": plan.tokens,
        "seconds": plan.seconds if math.isfinite(plan.seconds) else None,
        "num_prompts": plan.num_prompts,
        "runs": [_read(path) for path in sorted(plan.out.glob("runs/*/result.json"))],
        "curves": {path.parent.name: _curve(path) for path in sorted(plan.out.glob(LOGS))},
        "checkpoints": {
            name: _read(path)
            for name in CHECKPOINTS
            if (path := plan.out / "checkpoints" / name / "measured.json").exists()
        },
    }
    write_text(plan.out / f"{NAME}.json", _json(document))
    write_pages(plan.out / f"{NAME}.json")


def write_pages(path: Path) -> None:
    """The tables and the picture of a document, beside it."""
    content = _read(path)
    if content["runs"]:
        write_text(path.with_suffix(".md"), markdown(content))
        write_text(path.with_suffix(".svg"), svg(content))


def _curve(path: Path) -> list[tuple[int, float, float | None]]:
    """Smoothed losses on the way: tokens read, clean, noisy (None of stage ``ar``)."""
    points = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        (one["tokens"], round(one["clean"], 4), round(one["noisy"], 4) if "noisy" in one else None)
        for one in points
    ]


def _json(document: dict[str, Any]) -> str:
    """One line for each run and each curve."""
    runs = ",\n".join(json.dumps(run) for run in document["runs"])
    curves = ",\n".join(
        f"{json.dumps(name)}: {json.dumps(curve)}" for name, curve in document["curves"].items()
    )
    rest = json.dumps({**document, "runs": [], "curves": {}}, indent=1)
    whole = rest.replace('"runs": []', f'"runs": [\n{runs}\n]')
    return whole.replace('"curves": {}', f'"curves": {{\n{curves}\n}}') + "\n"


def _read(path: Path) -> Any:
    return json.loads(path.read_text("utf-8"))
