"""The Python API: the examples of its document, streams that are steered, and its errors."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest

import mars_runtime as mars
from mars_runtime.api import MAX_SHOWN, NO_MESSAGES, Keywords, Model, Prompt
from mars_runtime.engine import Run
from mars_runtime.settings import DecodeSettings

ROOT = Path(__file__).parents[1]
LONG: dict[str, Any] = {
    "max_new_tokens": 400,
    "ignore_eos": True,
}  # no run ends before it is steered


def test_the_documented_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _, text = (ROOT / "docs" / "api.md").read_text("utf-8").split("\n## Python\n")
    example = doctest.DocTestParser().get_doctest(text.replace("```", ""), {}, "api.md", None, 0)
    flags = doctest.IGNORE_EXCEPTION_DETAIL
    assert not doctest.DocTestRunner(optionflags=flags).run(example).failed


def test_the_import_loads_no_torch() -> None:
    code = "import sys, mars_runtime; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "False", done.stderr


@pytest.fixture(scope="module")
def model(random_folder: Path) -> Iterator[Model]:
    with mars.load(random_folder, device="cpu", dtype="fp32") as loaded:
        yield loaded


def test_type_checkers_know_every_setting() -> None:
    assert get_type_hints(Keywords) == get_type_hints(DecodeSettings)


def test_a_change_of_settings_holds_from_the_next_forward_on(model: Model) -> None:
    with model.stream("Once", lossless=False, block_size=1, **LONG) as stream:
        steps = []
        for step in stream:
            steps.append(step)
            if len(steps) == 3:
                stream.settings = replace(stream.settings, block_size=4, tau=0.0)
    sizes = [step.step.rows[0].settings.block_size for step in steps]
    changed = sizes.index(4)
    assert changed >= 3
    assert set(sizes[:changed]) == {1}
    assert set(sizes[changed:]) == {4}
    assert {step.num_accepted for step in steps[:changed]} == {1}
    assert stream.result().text == "".join(step.text for step in steps)


def test_a_stream_that_is_stopped_or_left_ends_with_what_it_has(model: Model) -> None:
    stream = model.stream("Once", **LONG)
    first = next(iter(stream))
    stream.stop()
    stream.stop()
    ended = stream.result()
    assert ended.finish_reason == "cancelled"
    assert ended.text.startswith(first.text)
    assert ended.steps[0] == first.step
    with pytest.raises(KeyboardInterrupt), model.stream("Once", **LONG) as left:
        raise KeyboardInterrupt
    assert left.result().finish_reason == "cancelled"


NO_PROMPTS = [
    *(None, 5, b"Once", ["Once", None], np.array(1), np.array([["Once", "Two"]])),
    *({"role": "user", "content": "Once"}, [{"role": "user"}], [{"role": "system", "content": ""}]),
]
SENTENCES: list[tuple[Callable[[Model], object], str]] = [
    (lambda model: model.generate("Once", tau=2), "tau must be"),
    (lambda model: model.generate("Once", taus=1), "There is no setting taus"),
    (lambda model: model.generate("Once " * 5000), "tokens"),
    *((lambda model, no=no: model.generate(no), NO_MESSAGES) for no in NO_PROMPTS),
    (lambda _: mars.load("nobody"), "There is no checkpoint 'nobody'"),
    (lambda _: mars.load("mars-tiny", device=None), "The device must be"),
    (lambda model: model.generate("Once", max_new_tokens=1).save(""), "Name a file"),
    (lambda model: model.generate("Once", max_new_tokens=1).save("a\0"), "A file"),
    (lambda _: mars.show("nowhere.jsonl"), "cannot be read"),
    (lambda _: mars.show([None]), "A file must be named"),
    (lambda _: mars.show(), f"show accepts 1 to {MAX_SHOWN} runs"),
]


@pytest.mark.parametrize(("call", "sentence"), SENTENCES)
def test_an_error_of_the_caller_is_one_sentence(
    call: Callable[[Model], object], sentence: str, model: Model
) -> None:
    with pytest.raises(mars.MarsError) as caught:
        call(model)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_stream_takes_only_settings_that_fit_it(model: Model) -> None:
    with model.stream("Once", max_new_tokens=8) as stream:
        for settings in (replace(stream.settings, max_new_tokens=9), {"tau": 0.5}):
            with pytest.raises(mars.MarsError):
                stream.settings = settings
        with pytest.raises(mars.MarsError, match="tau must be"):
            stream.settings = replace(stream.settings, tau=-1.0)
        assert isinstance(stream.settings, DecodeSettings)


def test_plain_ar_in_a_comparison_has_no_settings_of_drafts(model: Model) -> None:
    race = model.compare("Once", max_new_tokens=12, repetition_penalty=1.2, lookup=True)
    chosen, plain = (item.trace.header.settings for item in (race.mars, race.ar))
    assert (chosen.method, chosen.lookup, chosen.lossless) == ("mars", True, True)
    expected = DecodeSettings(
        "ar", tau=1.0, block_size=1, max_new_tokens=12, repetition_penalty=1.2
    )
    assert plain == expected
    assert {step.rows[0].num_fed for step in race.ar.steps} == {1}


def test_a_long_list_is_answered_in_order(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mars_runtime.api.MAX_AT_ONCE", 3)
    prompts = [f"Once {number}" for number in range(8)]
    wanted = [model.generate(prompt, max_new_tokens=6).text for prompt in prompts]
    for given in (prompts, iter(prompts), np.array(prompts)):
        assert [item.text for item in model.generate(given, max_new_tokens=6)] == wanted
    assert model.generate([]) == []


def test_an_interrupt_ends_the_runs(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[Run] = []
    begin = Run.__init__

    def begun(run: Run, *given: Any) -> None:
        begin(run, *given)
        runs.append(run)

    def interrupted(run: Run, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    for call in (model.compare, lambda text, **given: model.generate([text, "Two"], **given)):
        with monkeypatch.context() as patch:
            patch.setattr(Run, "wait", interrupted)
            patch.setattr(Run, "__init__", begun)
            with pytest.raises(KeyboardInterrupt):
                call("Once", max_new_tokens=200)
    assert len(runs) == 4
    assert all(run.wait(60) and run.is_cancelled for run in runs)


def test_a_conversation_is_answered_as_a_whole(model: Model) -> None:
    turns = zip(("user", "assistant", "user"), ("Once", "upon", "a time"), strict=True)
    said: Prompt = [{"role": role, "content": text} for role, text in turns]
    whole, last = (model.generate(prompt, max_new_tokens=8) for prompt in (said, "a time"))
    assert len(whole.trace.header.prompt_ids) > len(last.trace.header.prompt_ids)
