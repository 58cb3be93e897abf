"""Traces that are brought to keep the server busy: none takes long, and the others are served."""

from __future__ import annotations

import json
import threading
import time

import pytest
import sample_traces as samples

from app.ui import imported_runs
from app.ui.imported_runs import read_import
from mars_runtime.settings import DecodeSettings

pytestmark = pytest.mark.timed

MOST = 4_000_000
SCRIPT = samples.Script(samples.PROSE, moves={9: DecodeSettings(tau=0.5, block_size=8)})


def lines_of() -> list[str]:
    return samples.trace_lines(samples.run(SCRIPT))


@pytest.mark.parametrize(
    "text", ["\n" * 40_000, "\n" * MOST, " \n" * (MOST // 2)], ids=["some", "many", "spaced"]
)
def test_blank_lines_cost_nothing(text: str) -> None:
    began = time.monotonic()
    assert list(read_import(text, MOST)) == ["error"]
    assert time.monotonic() - began < 1.0


def test_blank_lines_inside_a_trace_are_no_reason_to_rest() -> None:
    padded = "\n".join(["\n" * 2000, *lines_of(), "\n" * 2000])
    began = time.monotonic()
    assert read_import(padded, MOST)["lines"] == lines_of()
    assert time.monotonic() - began < 1.0


def test_many_at_once_are_refused_rather_than_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """45 posts while somebody's long trace is read: the server has 40 threads."""
    monkeypatch.setattr(imported_runs, "WAIT_SECONDS", 0.2)
    answers: list[dict[str, object]] = []
    text = "\n".join(lines_of())
    visitors = [
        threading.Thread(target=lambda: answers.append(read_import(text, MOST))) for _ in range(45)
    ]
    with imported_runs._one_at_a_time:
        began = time.monotonic()
        for visitor in visitors:
            visitor.start()
        for visitor in visitors:
            visitor.join(20)
        assert time.monotonic() - began < 5.0
    assert [answer["error"] for answer in answers] == [imported_runs.BUSY] * 45
    assert read_import(text, MOST)["lines"] == lines_of()


def test_reading_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported_runs, "READ_SECONDS", 0.0)
    assert "longer than" in read_import("\n".join(lines_of()), MOST)["error"]


def test_what_comes_back_can_be_sent() -> None:
    """A lone surrogate is valid JSON and no valid text: the answer could not be encoded."""
    lines = lines_of()
    pin = json.dumps({"type": "pin", "name": "\ud800"})
    for text in ("\ud800", "\n".join([*lines, "\udfff"]), "\n".join([pin, *lines])):
        answer = read_import(text, MOST)
        json.dumps(answer, ensure_ascii=False).encode()


def test_an_address_leaves_places_to_the_others() -> None:
    """Twelve clients of one bring runs without a pause, another one after the other."""
    text = "\n".join(lines_of())
    is_over = threading.Event()

    def keep_bringing() -> None:
        while not is_over.is_set():
            read_import(text, MOST, "many")

    crowd = [threading.Thread(target=keep_bringing) for _ in range(12)]
    for client in crowd:
        client.start()
    try:
        answers = [read_import(text, MOST, "one") for _ in range(20)]
    finally:
        is_over.set()
        for client in crowd:
            client.join(20)
    assert [list(answer) for answer in answers] == [["lines", "pin"]] * 20
    assert not imported_runs._reading
