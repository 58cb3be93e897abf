"""What is sent of a run, and what is stored of it for a page that missed lines."""

from __future__ import annotations

import gc
import json

from app.live.lanes import LiveLog
from app.ui.stream import NUM_KEPT, NUM_RESENDS, WHOLE_CHARS, RunLog, RunLogs

HEAD = {"run": "r", "lanes": [{"lane": "mars", "title": "MARS"}]}


def numbered(count: int) -> list[str]:
    return [json.dumps({"n": n, "pad": "x" * 60}) for n in range(count)]


def test_a_short_run_is_sent_whole_and_only_grows() -> None:
    made, sent = RunLog(HEAD), [""]
    for line in numbered(50):
        made.add("mars", line)
        assert made.latest().startswith(sent[-1])
        sent.append(made.latest())
    assert sent[-1] == made.whole()


def test_windows_of_a_long_run_stay_short_and_leave_nothing_out() -> None:
    made, seen = RunLog(HEAD), 0
    lines = numbered(4000)
    for begin in range(0, len(lines), 20):
        for line in lines[begin : begin + 20]:
            made.add("mars", line)
        first, *rest = made.latest().splitlines()
        start = json.loads(first).get("from", 0)
        assert start <= max(0, seen - 20 * (NUM_RESENDS - 1)) or seen <= 20 * NUM_RESENDS
        numbers = [json.loads(line.split("\t")[1])["n"] for line in rest]
        assert numbers == list(range(start, begin + 20))
        assert sum(map(len, rest)) <= WHOLE_CHARS + 20 * 100 * (NUM_RESENDS + 1)
        seen = start + len(rest)
    assert len(made.whole().splitlines()) == 1 + len(lines)


def test_each_line_is_json_for_any_text() -> None:
    made = RunLog({**HEAD, "pace": 4, "prompt": "one\u2028line"})
    made.add("status", {"text": "one\x85line\u2029", "kind": "waiting"})
    made.add("mars", '{"type":"prefill","num_tokens":3,"seconds":0.1}\n')
    head, status, prefill = made.whole().splitlines()
    assert json.loads(head)["pace"] == 4
    assert status.startswith("status\t{")
    assert prefill.startswith("mars\t{")
    assert RunLog(HEAD).whole().endswith("\n")


def log_of(text: str) -> LiveLog:
    made = LiveLog({"mars": "MARS"}, 0.0)
    made.set_status(text)
    return made


def test_a_run_is_given_whole_to_a_page_that_knows_its_id() -> None:
    logs = RunLogs()
    first, second = logs.store(log_of("first")), logs.store(log_of("second"))
    assert logs.missed(first.run) == first.whole()
    assert '"first"' in first.whole()
    assert logs.missed(second.run) == second.whole()
    assert first.has_news  # asking takes nothing from the stream
    for run in ("", "0" * 32, None, 7, ["x"], log_of("unkept").run):
        assert logs.missed(run) == ""


def test_the_latest_outlive_their_stream_and_a_stream_outlives_the_latest() -> None:
    logs = RunLogs()
    streaming = logs.store(log_of("streams still"))
    ended = [logs.store(log_of("ended")).run for _ in range(NUM_KEPT + 1)]
    gc.collect()
    assert logs.missed(streaming.run)
    assert not logs.missed(ended[0])
    assert all(logs.missed(run) for run in ended[1:])
