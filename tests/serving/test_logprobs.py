"""Log probabilities of tokens that are no valid text: no two runners-up look alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from scripted_server import Oracle, complete, said, serving

from mars_runtime.engine import Request
from mars_runtime.runs.events import Event, Step
from mars_runtime.settings import DecodeSettings

RIVALS = ((0xE2, 0.2), (0x80, 0.1), (0x99, 0.05))  # each of which reads U+FFFD by itself


class Fragments(Oracle):
    """Its runners-up are parts of characters; the first is likelier than what is written."""

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        for event in super().decode(request, settings):
            if isinstance(event, Step):
                (row,) = event.rows
                slots = tuple(
                    slot._replace(
                        confidence=0.15,
                        runners_up=tuple(r for r in RIVALS if r[0] != slot.token),
                    )
                    for slot in row.proposals
                )
                event = replace(event, rows=(replace(row, proposals=slots),))
            yield event


@pytest.mark.parametrize("is_stream", [False, True])
def test_the_sampled_token_is_among_the_top_ones_and_no_two_share_a_key(
    tmp_path: Path, is_stream: bool
) -> None:
    backend = Fragments(forward_seconds=0.0)
    with serving(tmp_path, backend) as place:
        for number in range(4):
            answer = said(complete(place, "Once", logprobs=number, stream=is_stream))
            given = [c.logprobs for chunk in answer.chunks for c in chunk.choices if c.logprobs]
            rivals = [r"bytes:\xe2", r"bytes:\x80"][: (0, 1, 1, 2)[number]]
            top = [*rivals[:1], given[0].tokens[0], *rivals[1:]]
            assert list(given[0].top_logprobs[0]) == top
            tokens = [token for logprobs in given for token in logprobs.tokens]
            assert r"bytes:\xf0" in tokens  # the beginning of an emoji
            assert not any("\ufffd" in token for token in tokens)
            for logprobs in given:
                shares = zip(
                    logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
                )
                assert all(top[token] == share for token, share, top in shares)
