"""Former names of settings are accepted wherever settings come in, and never next to current ones.

The typed endpoints are tested in tests/app/test_client.py, lm-eval's arguments in
tests/harness/test_harness_model.py and the page's scripts in tests/web/former.test.js.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import pytest

from app.engines.limits import Limits
from app.live.order import read_link
from mars_runtime import cli_generate
from mars_runtime.api import read_keywords
from mars_runtime.events import Step
from mars_runtime.lab.evaluation import cli as evaluation
from mars_runtime.lab.evaluation.grid import FORMER_FIELDS, Grid
from mars_runtime.review.methods import method_of_json, read_method
from mars_runtime.serving.errors import ApiError
from mars_runtime.serving.requests import RunBody, SteerBody, changed, completion_of, parse, read
from mars_runtime.serving.responses import read_request
from mars_runtime.settings import (
    FORMER_NAMES,
    FORMER_WORDS,
    RECOMMENDED,
    SETTINGS,
    DecodeSettings,
    SettingsError,
    read_settings,
)
from mars_runtime.trace import Header, Trace, TraceError, read_trace
from tests.sample_traces import Script, run, trace_lines


class Given(NamedTuple):
    """A setting under its former name, and the same under its current one."""

    former: str
    value: Any
    name: str
    current: Any

    @property
    def old(self) -> dict[str, Any]:
        return {self.former: self.value}

    @property
    def both(self) -> dict[str, Any]:
        return {self.former: self.value, self.name: self.current}


GIVEN = (
    Given("threshold", "entropy", "tau_policy", "entropy"),
    Given("target", 0.7, "agreement_target", 0.7),
    Given("aim", "passes", "auto_objective", "passes"),
    Given("groups", "one", "mask_layout", "last"),
    Given("groups", "every", "mask_layout", "every"),
)
Values = Mapping[str, Any]
Entry = Callable[[Values], Any]
"""Reads settings by name, and returns an object that has them as attributes."""


def by_trace_header(values: Values) -> Any:
    return read_trace(_lines(values, None)).header.settings


def by_trace_row(values: Values) -> Any:
    events = read_trace(_lines({}, values)).events
    return next(event for event in events if isinstance(event, Step)).rows[0].settings


def _lines(header: Values, row: Values | None) -> list[str]:
    script = Script("Seven apples are left.", DecodeSettings(tau=0.5))
    first, *rest = map(json.loads, trace_lines(run(script)))
    lines = [{**first, "settings": header}]
    for line in rest:
        if line["type"] == "step" and row is not None:
            rows = [{**item, "settings": row} for item in line["rows"]]
            line, row = {**line, "rows": rows}, None
        lines.append(line)
    return list(map(json.dumps, lines))


def by_chat(values: Values) -> Any:
    return completion_of("chat", parse(_chat(values))).settings


def _chat(values: Values) -> bytes:
    messages = [{"role": "user", "content": "x"}]
    return json.dumps({"model": "m", "messages": messages, **values}).encode()


def by_response(values: Values) -> Any:
    body = json.dumps({"model": "m", "input": "x", **values}).encode()
    return read_request(body).chat.settings


def by_lane(values: Values) -> Any:
    lane = {"prompt_ids": [1], **values}
    return read(RunBody, json.dumps({"model": "m", "lanes": [lane]}).encode()).lanes[0]


def by_steering(values: Values) -> Any:
    posted = read(SteerBody, json.dumps(dict(values)).encode())
    return changed(RECOMMENDED, posted, FORMER_NAMES.values())


def by_flags(values: Values) -> Any:
    parser = argparse.ArgumentParser()
    cli_generate.add_parser(parser.add_subparsers())
    flags = [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]
    return cli_generate.settings_of(parser.parse_args(["generate", "--prompt", "x", *flags]))


def by_way(values: Values) -> Any:
    words = ",".join(f"{name}={value}" for name, value in values.items())
    return read_method(f"lossless,B=4,{words}", "mars-tiny").settings


def by_stored_way(values: Values) -> Any:
    return method_of_json({"name": "x", "checkpoint": "x", "settings": dict(values)}).settings


ENTRIES: dict[str, Entry] = {
    "result file": lambda values: read_settings(dict(values)),
    "header of a trace": by_trace_header,
    "row of a trace": by_trace_row,
    "chat": by_chat,
    "response": by_response,
    "lane on another machine": by_lane,
    "steering": by_steering,
    "flags": by_flags,
    "way of Review": by_way,
    "way in a set": by_stored_way,
    "Python": read_keywords,
}


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("entry", ENTRIES)
def test_a_former_name_is_read_as_the_current_one(entry: str, given: Given) -> None:
    assert getattr(ENTRIES[entry](given.old), given.name) == given.current


@pytest.mark.parametrize("given", GIVEN, ids=str)
@pytest.mark.parametrize("entry", ENTRIES)
def test_both_names_are_refused_in_one_sentence(entry: str, given: Given) -> None:
    sentence = f"{given.former} is the former name of {given.name}: give only {given.name}."
    with pytest.raises((SettingsError, ApiError, TraceError)) as error:
        ENTRIES[entry](given.both)
    assert sentence in str(error.value)
    with pytest.raises((SettingsError, ApiError, TraceError)):
        ENTRIES[entry](dict(reversed(given.both.items())))


@pytest.mark.parametrize("given", GIVEN, ids=str)
def test_a_link_sets_the_control_of_the_current_name(given: Given) -> None:
    limits = Limits(8000, 512, 8)
    read = {name: str(value) for name, value in given.old.items()}
    assert read_link(read, lambda name: limits, "x") == ({given.name: given.current}, "")
    values, sentence = read_link({**given.both, "tau": "0.5"}, lambda name: limits, "x")
    assert values == {}
    assert f"give only {given.name}." in sentence


FORMER_FLAGS = {
    "thresholds": (["entropy", "fixed"], ("entropy", "fixed")),
    "targets": (["0.7"], (0.7,)),
    "groups": (["one", "every"], ("last", "every")),
}


@pytest.mark.parametrize("former", FORMER_FIELDS)
def test_evaluate_accepts_its_former_flags(
    former: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    grids: list[Grid] = []
    monkeypatch.setattr(
        evaluation, "_run", lambda args, console: grids.append(evaluation.grid_of(args, [])) or 0
    )
    parser = argparse.ArgumentParser()
    evaluation.add_parser(parser.add_subparsers(dest="command"))
    words, values = FORMER_FLAGS[former]
    name = FORMER_FIELDS[former]
    old, new = (["--" + item.replace("_", "-"), *words] for item in (former, name))
    assert evaluation.run(parser.parse_args(["evaluate", *old])) == 0
    assert getattr(grids[0], name) == values
    assert evaluation.run(parser.parse_args(["evaluate", *old, *new])) == 2
    assert f"give only {name}." in capsys.readouterr().err


def test_a_name_has_one_meaning() -> None:
    assert set(FORMER_NAMES.values()) <= SETTINGS.keys()
    assert not FORMER_NAMES.keys() & SETTINGS.keys()
    for name, words in FORMER_WORDS.items():
        assert set(words.values()) <= set(SETTINGS[name].choices)
        assert not words.keys() & set(SETTINGS[name].choices)


def test_a_trace_is_written_with_current_names() -> None:
    settings = DecodeSettings(tau_policy="entropy")
    line = next(Trace(Header("x", "", (), settings), [], {}).lines())
    assert not FORMER_NAMES.keys() & json.loads(line)["settings"].keys()
