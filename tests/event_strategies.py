"""Hypothesis strategies for settings, events and whole runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from hypothesis import strategies as st

from mars_runtime.decoders.methods import METHODS
from mars_runtime.runs.events import End, EndReason, Event, Prefill, Proposal, RowStep, Step
from mars_runtime.runs.trace import Header
from mars_runtime.settings import MASK_LAYOUTS, MASKED, METRICS, TAU_POLICIES, DecodeSettings
from mars_runtime.text import Turn

SECONDS = st.floats(0, 1e6, allow_nan=False)
TOKENS = st.integers(0, 300)
SETTINGS = st.builds(
    DecodeSettings,
    method=st.sampled_from([name for name, facts in METHODS.items() if facts.has_auto]),
    tau=st.floats(0, 1),
    block_size=st.integers(1, 16) | st.just("auto"),
    metric=st.sampled_from(METRICS),
    lossless=st.booleans(),
    max_new_tokens=st.integers(1, 4096),
    temperature=st.floats(0, 2),
    seed=st.integers(0, 2**31 - 1),
    mask_layout=st.sampled_from(MASK_LAYOUTS),
    lookup=st.booleans(),
    draft=st.text(max_size=8),
    masked=st.sampled_from(MASKED),
    top_p=st.floats(0.01, 1),
    tau_policy=st.sampled_from(TAU_POLICIES),
    agreement_target=st.floats(0.5, 0.999),
    top_k=st.integers(-1, 2**31 - 1),
    min_p=st.floats(0, 1),
    ignore_eos=st.booleans(),
).flatmap(
    lambda made: st.sampled_from(list(METHODS)).map(
        lambda method: made if made.is_auto else replace(made, method=method)
    )
)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
_HEADERS = st.builds(
    Header,
    checkpoint=st.text(max_size=8),
    prompt=st.text(max_size=20),
    prompt_ids=st.lists(TOKENS, max_size=5).map(tuple),
    settings=SETTINGS,
    hardware=st.text(max_size=8),
    dtype=st.text(max_size=8),
    versions=st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=3),
    threads=st.integers(0, 64),
    date=st.text(max_size=8),
    task=st.none() | st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3),
    name=st.text(max_size=8),
    rho=st.dictionaries(st.integers(1, 64), st.lists(st.floats(1, 9), max_size=4).map(tuple)),
    forward_seconds=st.floats(0, 10),
    is_bitwise=st.booleans(),
    history=st.lists(
        st.builds(Turn, st.text(max_size=8), st.lists(TOKENS, max_size=3).map(tuple)), max_size=2
    ).map(tuple),
    num_left_out=st.integers(0, 9),
    room=st.integers(0, 9999),
)
HEADERS = _HEADERS.flatmap(
    lambda header: st.integers(0, len(header.prompt_ids)).map(
        lambda num_given: replace(header, num_given=num_given)
    )
)
_CHANCES = st.tuples(TOKENS, st.floats(0, 1))
_RUNNERS_UP = st.lists(_CHANCES, max_size=2).map(tuple)
PROPOSALS = st.builds(Proposal, TOKENS, st.floats(-1, 1), _RUNNERS_UP)


@st.composite
def runs(draw: st.DrawFn) -> list[Event]:
    num_read = draw(st.integers(0, 99))
    num_reused, num_bytes = draw(st.integers(0, num_read)), draw(st.integers(0, 2**40))
    events: list[Event] = [Prefill(num_read, draw(SECONDS), num_bytes, num_reused)]
    emitted = [0, 0]
    choices = draw(st.lists(SETTINGS, min_size=1, max_size=3))
    for _ in range(draw(st.integers(0, 5))):
        steps = []
        for row in filter(lambda row: draw(st.booleans()), range(2)):
            proposals = draw(st.lists(PROPOSALS, min_size=1, max_size=4))
            checks = draw(st.lists(_CHANCES, max_size=min(3, emitted[row])))
            taken = draw(st.integers(1, len(proposals)))
            accepted = tuple(proposal.token for proposal in proposals[:taken])
            steps.append(
                RowStep(
                    row=row,
                    start=emitted[row],
                    cursor=draw(st.integers(0, 99)),
                    num_pending=draw(st.integers(1, 16)),
                    num_fed=draw(st.integers(1, 31)),
                    proposals=tuple(proposals),
                    accepted=accepted,
                    num_drafted=draw(st.integers(0, 4)),
                    settings=draw(st.sampled_from(choices)),
                    stop=draw(st.sampled_from(["block", "threshold", "mismatch"])),
                    block_size=draw(st.integers(0, 16)),
                    checks=tuple(checks),
                    groups=tuple(draw(st.lists(st.integers(0, 15), max_size=4))),
                    looked_up=tuple(draw(st.lists(TOKENS, max_size=3))),
                    guessed=tuple(draw(st.lists(TOKENS, max_size=3))),
                    taken=tuple(draw(st.lists(st.integers(0, 15), max_size=3))),
                    num_draft_forwards=draw(st.integers(0, 3)),
                    threshold=draw(st.none() | st.floats(0, 1)),
                    declined=draw(st.sampled_from([(), (1.5, 1.6)])),
                )
            )
            emitted[row] += taken
        events.append(Step(tuple(steps), draw(SECONDS)))
    ends = st.builds(End, st.sampled_from(get_args(EndReason)), st.text(max_size=9))
    return [*events, *draw(st.lists(ends, max_size=1))]
