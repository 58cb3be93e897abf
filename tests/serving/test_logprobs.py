"""Log probabilities of tokens that are no valid text: no two runners-up look alike."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Oracle, Place, complete, said, serving

from mars_runtime.engine import Request
from mars_runtime.runs.events import Event, Step
from mars_runtime.settings import DecodeSettings

RIVALS = ((0xE2, 0.2), (0x80, 0.1), (0x99, 0.05))  # each of which reads U+FFFD by itself


class Fragments(Oracle):
    """Its runners-up are parts of characters.

    confidence: of the tokens that are written.
    """

    confidence = 0.6

    def decode(self, request: Request, settings: Callable[[], DecodeSettings]) -> Iterator[Event]:
        for event in super().decode(request, settings):
            if isinstance(event, Step):
                (row,) = event.rows
                slots = tuple(
                    slot._replace(
                        confidence=self.confidence,
                        runners_up=tuple(r for r in RIVALS if r[0] != slot.token),
                    )
                    for slot in row.proposals
                )
                event = replace(event, rows=(replace(row, proposals=slots),))
            yield event


@pytest.fixture(scope="module")
def fragments(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with serving(tmp_path_factory.mktemp("fragments"), Fragments(forward_seconds=0.001)) as server:
        yield server


@pytest.mark.parametrize("is_stream", [False, True])
def test_no_two_tokens_of_a_text_completion_share_a_key(fragments: Place, is_stream: bool) -> None:
    answer = complete(fragments, "Once", logprobs=3, stream=is_stream)
    actual: dict[str, list[Any]] = defaultdict(list)
    for choice in (choice for chunk in said(answer).chunks for choice in chunk.choices):
        for name, values in (choice.logprobs.model_dump() if choice.logprobs else {}).items():
            actual[name] += values
    assert {len(best) for best in actual["top_logprobs"]} == {3}
    assert set(actual["top_logprobs"][0]) == {actual["tokens"][0], r"bytes:\xe2", r"bytes:\x80"}
    assert not [token for token in actual["tokens"] if "\ufffd" in token]
    assert r"bytes:\xf0" in actual["tokens"]  # the beginning of an emoji


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize(
    ("number", "rivals"),
    [(0, []), (1, [r"bytes:\xe2"]), (2, [r"bytes:\xe2"]), (3, [r"bytes:\xe2", r"bytes:\x80"])],
)
def test_the_sampled_token_is_among_the_top_ones(
    tmp_path: Path, number: int, rivals: list[str], is_stream: bool
) -> None:
    backend = Fragments(forward_seconds=0.0)
    backend.confidence = 0.15  # less than the first of RIVALS, more than the others
    with serving(tmp_path, backend) as place:
        answer = said(complete(place, "Once", logprobs=number, stream=is_stream))
    given = [c.logprobs for chunk in answer.chunks for c in chunk.choices if c.logprobs]
    assert list(given[0].top_logprobs[0]) == [*rivals[:1], given[0].tokens[0], *rivals[1:]]
    for logprobs in given:
        for token, share, top in zip(
            logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, strict=True
        ):
            assert top[token] == share
            assert len(top) <= number + 1
