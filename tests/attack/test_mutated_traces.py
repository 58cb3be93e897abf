"""Traces that were changed by somebody: each is read as a trace or refused in one sentence."""

from __future__ import annotations

import json
import random
from typing import Any

import sample_traces as samples

from app.ui.imported_runs import read_import
from mars_runtime.settings import DecodeSettings

MOST = 4_000_000
SCRIPT = samples.Script(samples.PROSE[:400], moves={3: DecodeSettings(tau=0.5, block_size=8)})
VALUES: list[Any] = [
    None, True, -1, 0, 1e308, 10**400, "", "x", "\ud83d", [], {}, [[]], {"a": 1}, "__proto__",
    "<img src=x onerror=alert(1)>", json.loads("[" * 300 + "]" * 300),
]  # fmt: skip


def lines_of() -> list[str]:
    return samples.trace_lines(samples.run(SCRIPT))


def changed(value: Any, rng: random.Random) -> Any:
    """The value with one place in it, at any depth, replaced or taken out."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        if rng.random() < 0.15:
            return {name: each for name, each in value.items() if name != key}
        return {**value, key: changed(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.15:
            return value[:at] + value[at + 1 :]
        return [*value[:at], changed(value[at], rng), *value[at + 1 :]]
    if isinstance(value, int) and rng.random() < 0.5:
        return value + rng.choice((-1, 1, 1000))
    return rng.choice(VALUES)


def mutated(lines: list[str], rng: random.Random) -> str:
    """A trace in which one thing is wrong: a value, a line or some characters."""
    at = rng.randrange(len(lines))
    kind = rng.random()
    if kind < 0.6:
        lines = [*lines[:at], json.dumps(changed(json.loads(lines[at]), rng)), *lines[at + 1 :]]
    elif kind < 0.7:
        lines = lines[:at] + lines[at + 1 :]
    elif kind < 0.8:
        lines = [*lines[:at], lines[rng.randrange(len(lines))], *lines[at:]]
    text = "\n".join(lines)
    if kind >= 0.8:
        at = rng.randrange(len(text))
        cut = rng.randrange(8)
        text = text[:at] + "".join(rng.choices('{}[]",:0\x00é\u2028', k=3)) + text[at + cut :]
    return text


def test_a_changed_trace_is_a_trace_or_a_sentence(is_full_attack: bool) -> None:
    rng, lines = random.Random(7), lines_of()
    outcomes = {"lines": 0, "error": 0}
    for _ in range(2000 if is_full_attack else 150):
        text = mutated(list(lines), rng)
        found = read_import(text, MOST)
        if "error" not in found:
            outcomes["lines"] += 1
            again = read_import("\n".join(found["lines"]), MOST)
            assert again["lines"] == found["lines"]  # what is kept is what would be written
            continue
        outcomes["error"] += 1
        sentence = found["error"]
        assert sentence.strip() == sentence, text[:300]
        assert sentence[-1] == ".", sentence
        assert "\n" not in sentence
        assert len(sentence) < 300, sentence
        assert not any(word in sentence for word in ("Traceback", "0x", "<class")), sentence
    assert min(outcomes.values()) > 0, outcomes
