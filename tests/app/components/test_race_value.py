"""What is sent of a run: all of it while short, then overlapping windows, never a gap."""

from __future__ import annotations

import json

from app.components import race_value
from app.components.race_value import OVERLAP, WHOLE_CHARS, RaceValue

HEAD = {"run": "r", "lanes": [{"lane": "mars", "title": "MARS"}]}


def numbered(count: int, length: int = 60) -> list[str]:
    return [json.dumps({"n": n, "pad": "x" * length}) for n in range(count)]


def test_a_short_run_is_sent_whole_and_only_grows() -> None:
    made, sent = RaceValue(HEAD), [""]
    for line in numbered(50):
        made.add("mars", line)
        value = made.latest()
        assert value.startswith(sent[-1])
        sent.append(value)
    assert sent[-1] == made.whole()


def test_windows_of_a_long_run_stay_short_and_leave_nothing_out() -> None:
    made, seen = RaceValue(HEAD), 0
    lines = numbered(4000)
    for begin in range(0, len(lines), 20):
        for line in lines[begin : begin + 20]:
            made.add("mars", line)
        first, *rest = made.latest().splitlines()
        start = json.loads(first).get("from", 0)
        assert start <= max(0, seen - 20 * (OVERLAP - 1)) or seen <= 20 * OVERLAP
        assert [json.loads(line.split("\t")[1])["n"] for line in rest] == list(
            range(start, begin + 20)
        )
        assert sum(map(len, rest)) <= WHOLE_CHARS + 20 * 100 * (OVERLAP + 1)
        seen = start + len(rest)
    assert len(made.whole().splitlines()) == 1 + len(lines)


def test_lines_of_the_run_are_json_and_end_with_a_newline() -> None:
    made = RaceValue({**HEAD, "pace": 4})
    made.add("status", {"text": "Waiting: 1 run is ahead of yours.", "kind": "waiting"})
    made.add("mars", '{"type":"prefill","num_tokens":3,"seconds":0.1}\n')
    head, status, prefill = made.whole().splitlines()
    assert json.loads(head)["pace"] == 4
    assert status.startswith("status\t{")
    assert prefill.startswith("mars\t{")
    assert race_value.RaceValue(HEAD).whole().endswith("\n")
