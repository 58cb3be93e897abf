"""The Python API: the examples of its document, streams that are steered, and its errors."""

from __future__ import annotations

import doctest
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
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
    with model.stream("Once", lossless=False, block_size=1, max_new_tokens=40) as stream:
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
    stream = model.stream("Once", ignore_eos=True, max_new_tokens=200)
    first = next(iter(stream))
    stream.stop()
    stream.stop()
    ended = stream.result()
    assert ended.finish_reason == "cancelled"
    assert ended.text.startswith(first.text)
    assert ended.steps[0] == first.step
    with pytest.raises(KeyboardInterrupt), model.stream("Once", max_new_tokens=200) as left:
        raise KeyboardInterrupt
    assert left.result().finish_reason == "cancelled"


def test_streams_of_one_model_run_at_the_same_time(model: Model) -> None:
    with (
        model.stream("Once", max_new_tokens=8) as first,
        model.stream("Two", max_new_tokens=8) as two,
    ):
        both = [first.result().text, two.result().text]
    assert both == [item.text for item in model.generate(["Once", "Two"], max_new_tokens=8)]


SENTENCES = {
    "tau": (lambda model: model.generate("Once", tau=2), "tau must be"),
    "name": (lambda model: model.generate("Once", taus=1), "There is no setting taus"),
    "method": (lambda model: model.stream("Once", method="beam"), "method"),
    "messages": (lambda model: model.generate([{"role": "user"}]), NO_MESSAGES),
    "last": (lambda model: model.generate([{"role": "system", "content": ""}]), NO_MESSAGES),
    "length": (lambda model: model.generate("Once " * 5000), "tokens"),
    "checkpoint": (lambda _: mars.load("nobody"), "There is no checkpoint 'nobody'"),
    "device": (lambda _: mars.load("mars-tiny", device="tpu"), "The device must be"),
    "save": (lambda model: model.generate("Once", max_new_tokens=1).save(""), "Name a file"),
    "file": (lambda _: mars.show("nowhere.jsonl"), "cannot be read"),
    "none": (lambda model: model.generate(None), NO_MESSAGES),
    "number": (lambda model: model.generate(5), NO_MESSAGES),
    "message": (lambda model: model.generate({"role": "user", "content": "Once"}), NO_MESSAGES),
    "bytes": (lambda model: model.generate(b"Once"), NO_MESSAGES),
    "array": (lambda model: model.generate(np.array(1)), NO_MESSAGES),
    "nothing": (lambda model: model.generate(["Once", None]), NO_MESSAGES),
    "arrays": (lambda model: model.generate(np.array([["Once", "Two"]])), NO_MESSAGES),
    "no device": (lambda _: mars.load("mars-tiny", device=None), "The device must be"),
    "save none": (lambda model: model.generate("Once", max_new_tokens=1).save(None), "A file"),
    "save zero": (lambda model: model.generate("Once", max_new_tokens=1).save("a\0"), "A file"),
    "show number": (lambda _: mars.show(3), "A file must be named"),
    "show none": (lambda _: mars.show([None]), "A file must be named"),
    "show zero": (lambda _: mars.show("a\0"), "A file must be named"),
    "many": (lambda _: mars.show(), f"show accepts 1 to {MAX_SHOWN} runs"),
}


@pytest.mark.parametrize("name", SENTENCES)
def test_an_error_of_the_caller_is_one_sentence(name: str, model: Model) -> None:
    call: Callable[[Model], object]
    call, sentence = SENTENCES[name]
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
    texts = [item.text for item in model.generate(prompts, max_new_tokens=6)]
    assert texts == [model.generate(prompt, max_new_tokens=6).text for prompt in prompts]
    assert model.generate([]) == []


@pytest.mark.parametrize("call", ["generate", "compare", "list"])
def test_an_interrupt_ends_the_runs(
    call: str, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Ctrl-C does while a result is waited for."""
    runs: list[Run] = []

    def interrupted(run: Run, timeout: float | None = None) -> bool:
        raise KeyboardInterrupt

    def begun(run: Run, *given: Any) -> None:
        begin(run, *given)
        runs.append(run)

    begin = Run.__init__
    calls = {
        "generate": lambda: model.generate("Once", max_new_tokens=200),
        "compare": lambda: model.compare("Once", max_new_tokens=200),
        "list": lambda: model.generate(["Once", "Two"], max_new_tokens=200),
    }
    with monkeypatch.context() as patch:
        patch.setattr(Run, "wait", interrupted)
        patch.setattr(Run, "__init__", begun)
        with pytest.raises(KeyboardInterrupt):
            calls[call]()
    assert len(runs) == (1 if call == "generate" else 2)
    assert all(run.wait(60) and run.is_cancelled for run in runs)


class Series:
    """A column of a table, which like pandas' has no truth value."""

    def __iter__(self) -> Iterator[str]:
        return iter(["Once", "Two"])

    def __getitem__(self, label: str) -> str:
        return {"a": "Once", "b": "Two"}[label]

    def __bool__(self) -> bool:
        raise ValueError("The truth value of a Series is ambiguous.")


@pytest.mark.parametrize(
    "prompts",
    [("Once", "Two"), (text for text in ["Once", "Two"]), np.array(["Once", "Two"]), Series()],
    ids=["tuple", "generator", "array", "series"],
)
def test_several_prompts_are_any_iterable(prompts: Iterable[str], model: Model) -> None:
    texts = [item.text for item in model.generate(prompts, max_new_tokens=4)]
    assert texts == [model.generate(prompt, max_new_tokens=4).text for prompt in ["Once", "Two"]]


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("max_new_tokens", np.int64(4), 4),
        ("block_size", np.uint8(3), 3),
        ("tau", np.float32(0.5), 0.5),
        ("temperature", np.float64(0.5), 0.5),
        ("lossless", np.bool_(False), False),
        ("logit_bias", {np.int64(7): np.float32(-1)}, ((7, -1.0),)),
    ],
)
def test_numbers_of_numpy_become_numbers_of_python(name: str, given: Any, value: object) -> None:
    actual = getattr(DecodeSettings(**{name: given}), name)
    assert (repr(actual), actual) == (repr(value), value)


def test_a_conversation_is_answered_as_a_whole(model: Model) -> None:
    said: Prompt = [
        {"role": "user", "content": "Once"},
        {"role": "assistant", "content": "upon"},
        {"role": "user", "content": "a time"},
    ]
    whole, last = (model.generate(prompt, max_new_tokens=8) for prompt in (said, "a time"))
    lengths = [len(item.trace.header.prompt_ids) for item in (whole, last)]
    assert lengths[0] > lengths[1]
