"""What is kept of a run for a page that missed lines of it."""

from __future__ import annotations

import gc

from app.feed import NUM_KEPT, Feeds
from app.live.run import LiveFeed


def feed_of(text: str) -> LiveFeed:
    made = LiveFeed(["mars"], 0.0)
    made.say(text)
    return made


def test_a_run_is_given_whole_to_whoever_knows_its_id() -> None:
    feeds = Feeds()
    first, second = feeds.keep(feed_of("first")), feeds.keep(feed_of("second"))
    assert feeds.missed(first.run) == first.whole()
    assert '"first"' in first.whole()
    assert feeds.missed(second.run) == second.whole()
    assert first.has_news  # asking takes nothing from the stream


def test_what_nobody_kept_is_empty() -> None:
    feeds = Feeds()
    for run in ("", "0" * 32, None, 7, ["x"], feed_of("unkept").run):
        assert feeds.missed(run) == ""


def test_the_latest_outlive_their_stream_and_a_stream_outlives_the_latest() -> None:
    feeds = Feeds()
    streaming = feeds.keep(feed_of("streams still"))
    ended = [feeds.keep(feed_of("ended")).run for _ in range(NUM_KEPT + 1)]
    gc.collect()
    assert feeds.missed(streaming.run)
    assert not feeds.missed(ended[0])
    assert all(feeds.missed(run) for run in ended[1:])
