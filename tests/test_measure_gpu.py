"""``tools/measure_gpu.py``: steps that fail, hang or can't run never stop the next one, and results
are kept. The dry run goes from a bare folder to a record of all steps."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from mars_runtime.outputs import write_text
from mars_runtime.places import SOURCE
from tools import measure_gpu
from tools.measure_gpu import NO_CHAT, NO_TEXTS, NO_TIME, Measurement, Runner, join_parts, plan

WRITE = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"
HANG = "import time; time.sleep(60)"
IGNORE = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
CHILD = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', sys.argv[3]])"
SAVE = "import signal, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit())"


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure_gpu, "GRACE", 1.0)


def stub(
    tmp_path: Path, name: str, code: str, *, seconds: float = 20.0, **more: Any
) -> Measurement:
    """A step that runs ``code``, with the file that it may write and a result to write there."""
    out = tmp_path / f"{name}.out"
    return Measurement(
        name,
        seconds,
        ("-c", code, str(out), json.dumps({"of": name, "commit": None}), IGNORE + "; " + HANG),
        {out: f"results/gpu_{name}.json"},
        **more,
    )


def run(
    tmp_path: Path, steps: Sequence[Measurement], seconds: float = 100.0
) -> dict[str, dict[str, Any]]:
    out, work = tmp_path / "assets", tmp_path
    runner = Runner(out, work, time.monotonic() + seconds, {"PATH": ""}, commit="abc")
    actual_steps = runner.run(steps)
    document = json.loads((out / "results" / "gpu_run.json").read_text())
    assert document["steps"][-len(actual_steps) :] == actual_steps
    return {step["name"]: step for step in actual_steps}


def result(tmp_path: Path, name: str) -> Any:
    return json.loads((tmp_path / "assets" / "results" / f"gpu_{name}.json").read_text())


def test_no_step_stops_the_next(tmp_path: Path) -> None:
    actual = run(
        tmp_path,
        [
            stub(tmp_path, "fails", "print('why it failed'); raise SystemExit(3)"),
            stub(tmp_path, "hangs", HANG, seconds=1.0),
            stub(tmp_path, "is_killed", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"),
            stub(tmp_path, "garbage", WRITE.replace("sys.argv[2]", "'{'")),
            stub(tmp_path, "works", WRITE),
        ],
    )
    assert {name: item["state"] for name, item in actual.items()} == {
        "fails": "failed",
        "hangs": "stopped at its limit",
        "is_killed": "failed",
        "garbage": "done",
        "works": "done",
    }
    assert actual["fails"]["exit_code"] == 3
    assert actual["fails"]["output"] == ["why it failed"]
    assert actual["garbage"]["results"] == actual["hangs"]["results"] == []
    assert actual["works"]["results"] == ["results/gpu_works.json"]
    assert result(tmp_path, "works") == {"of": "works", "commit": "abc"}


def test_a_step_that_ignores_its_limit_ends_with_its_children(tmp_path: Path) -> None:
    start = time.monotonic()
    stubborn = f"{IGNORE}; {CHILD}; print('began', flush=True); {HANG}"
    actual = run(tmp_path, [stub(tmp_path, "stubborn", stubborn, seconds=2.0)])
    assert actual["stubborn"]["state"] == "stopped at its limit"
    assert time.monotonic() - start < 30
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert str(tmp_path / "stubborn.out") not in listed.stdout
    assert not any(line.endswith(f"{IGNORE}; {HANG}") for line in listed.stdout.splitlines())


def test_a_step_may_save_what_it_has_at_its_limit(tmp_path: Path) -> None:
    late = f"{SAVE}\ntry:\n  {HANG}\nfinally:\n  {WRITE}"
    step = stub(tmp_path, "late", late.replace("; time.sleep", "\n  time.sleep"), seconds=1.5)
    actual = run(tmp_path, [step])
    assert actual["late"]["state"] == "stopped at its limit"
    assert result(tmp_path, "late")["of"] == "late"


def test_results_are_there_before_the_next_step_begins(tmp_path: Path) -> None:
    place = tmp_path / "assets" / "results" / "gpu_first.json"
    record = place.with_name("gpu_run.json")
    look = f"import json; json.load(open({str(place)!r})); json.load(open({str(record)!r}))"
    actual = run(tmp_path, [stub(tmp_path, "first", WRITE), stub(tmp_path, "second", look)])
    assert actual["second"]["state"] == "done", actual["second"]["output"]


def test_the_record_keeps_what_other_calls_ran(tmp_path: Path) -> None:
    run(tmp_path, [stub(tmp_path, "one", "raise SystemExit(1)"), stub(tmp_path, "two", WRITE)])
    run(tmp_path, [stub(tmp_path, "one", WRITE)])
    steps = result(tmp_path, "run")["steps"]
    assert {step["name"]: step["state"] for step in steps} == {"two": "done", "one": "done"}


def test_what_cannot_run_is_skipped_with_a_sentence(tmp_path: Path) -> None:
    missing = stub(tmp_path, "chat", WRITE, missing=NO_CHAT)
    actual = run(tmp_path, [missing, stub(tmp_path, "works", WRITE)])
    assert (actual["chat"]["state"], actual["chat"]["reason"]) == ("skipped", NO_CHAT)
    assert actual["works"]["state"] == "done"
    assert not (tmp_path / "chat.out").exists()


def test_the_time_of_all_steps_ends(tmp_path: Path) -> None:
    start = time.monotonic()
    steps = [stub(tmp_path, "hangs", HANG, share=0.5), stub(tmp_path, "late", HANG)]
    actual_steps = run(tmp_path, [*steps, stub(tmp_path, "none", WRITE)], seconds=5.0)
    assert actual_steps["hangs"]["limit"] == pytest.approx(2.0, abs=0.2)
    assert actual_steps["late"]["state"] == "stopped at its limit"
    assert (actual_steps["none"]["state"], actual_steps["none"]["reason"]) == ("skipped", NO_TIME)
    assert time.monotonic() - start < 15


def test_an_earlier_result_is_never_taken_for_a_new_one(tmp_path: Path) -> None:
    for step in plan(tmp_path / "work", tmp_path, has_chat=True, is_dry=False):
        for path in step.results:
            assert path.is_relative_to(tmp_path / "work" / step.name)
    out = tmp_path / "fails" / "found.json"
    write_text(out, "{}")
    step = Measurement(
        "fails", 20.0, ("-c", "raise SystemExit(1)"), {out: "results/gpu_fails.json"}
    )
    assert run(tmp_path, [step])["fails"]["results"] == []


def test_steps_come_in_order_and_each_has_what_it_needs(tmp_path: Path) -> None:
    names = [step.name for step in plan(tmp_path, tmp_path, has_chat=True, is_dry=False)]
    shapes = ["shape_05b_1", "shape_05b_8", "shape_7b_1", "shape_7b_8"]
    assert names[:6] == ["environment", "tests", *shapes]
    assert names[-2:] == ["answers", "adapter"]
    assert names.index("chat") < names.index("race") < names.index("answers")
    bare = {s.name: s for s in plan(tmp_path, tmp_path / "no", has_chat=False, is_dry=False)}
    assert {name for name, step in bare.items() if step.missing == NO_CHAT} == {
        *("chat", "race", "answers", "adapter")
    }
    no_texts = {s.name: s for s in plan(tmp_path, tmp_path / "no", has_chat=True, is_dry=False)}
    assert {n for n, step in no_texts.items() if step.missing == NO_TEXTS} == {"answers", "adapter"}


@pytest.mark.parametrize("calls", [[("00", "01", "02")], [("00",), ("02",), ("01",)]])
def test_parts_are_joined_once_all_are_there(tmp_path: Path, calls: list[Sequence[str]]) -> None:
    pieces = {"00": b"abc", "01": b"def", "02": b"g"}
    target = tmp_path / "cache" / "model.gguf"
    for number, names in enumerate(calls):
        assert not target.exists()
        inputs = tmp_path / f"call{number}"  # what an earlier call brought is gone
        inputs.mkdir()
        for name in names:
            (inputs / f"model.gguf.{name}").write_bytes(pieces[name])
        join_parts(inputs, target, size=7)
    assert target.read_bytes() == b"abcdefg"
    assert [path.name for path in target.parent.iterdir()] == ["model.gguf"]


def test_an_unknown_step_gets_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    assert measure_gpu.main(["nonsense", "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert said.startswith("There is no step 'nonsense': choose among environment, tests")
    assert said.count("\n") == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_dry_run_completes_every_step_that_can_run(tmp_path: Path) -> None:
    """Without the chat model and texts, as in a fresh clone without a network."""
    command = [sys.executable, "tools/measure_gpu.py", "--dry-run", "--out", str(tmp_path)]
    cache = str(tmp_path / "cache")
    hidden = "import sys; sys.modules['gradio'] = None"
    (tmp_path / "sitecustomize.py").write_text(hidden)
    environment = {"MARS_CACHE": cache, "PYTHONPATH": str(tmp_path), "MARS_OFFLINE": "1"}
    done = subprocess.run(
        command,
        cwd=SOURCE,
        env=dict(os.environ) | environment,
        capture_output=True,
        text=True,
    )
    record = json.loads((tmp_path / "results" / "gpu_run.json").read_text())["steps"]
    assert done.returncode == 0, (
        done.stdout,
        [entry for entry in record if entry["state"] == "failed"],
    )
    skipped = {item["name"] for item in record if item["state"] == "skipped"}
    assert skipped == {"chat", "answers", "adapter"}
    assert {value["state"] for value in record if value["name"] not in skipped} == {"done"}
    (recording,) = json.loads((tmp_path / "recordings" / "gpu" / "index.json").read_text())
    assert (tmp_path / "recordings" / "gpu" / f"{recording['name']}.txt").is_file()
