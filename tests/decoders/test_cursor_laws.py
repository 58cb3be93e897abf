"""The laws of the cursor decoder for any scripted model."""

from __future__ import annotations

from dataclasses import replace

from helpers import foresight_script, steps_of, tokens_of
from hypothesis import given
from hypothesis import strategies as st
from test_cursor import run

from mars_runtime.settings import GROUPS, DecodeSettings, Groups


@given(
    seed=st.integers(0, 10_000),
    prompts=st.lists(st.lists(st.integers(3, 15), min_size=1, max_size=9), min_size=1, max_size=4),
    tau=st.sampled_from([0.0, 0.3, 0.7, 0.95, 1.0]),
    block_size=st.integers(1, 9),
    metric=st.sampled_from(["probability", "margin", "entropy"]),
    limit=st.integers(1, 25),
    temperature=st.sampled_from([0.0, 0.0, 0.8]),
    groups=st.sampled_from(GROUPS),
    lookup=st.booleans(),
)
def test_laws_hold_for_any_script(
    seed: int,
    prompts: list[list[int]],
    tau: float,
    block_size: int,
    metric: str,
    limit: int,
    temperature: float,
    groups: Groups,
    lookup: bool,
) -> None:
    script = foresight_script(seed)
    settings = DecodeSettings(
        tau=tau,
        block_size=block_size,
        metric=metric,  # type: ignore[arg-type]
        max_new_tokens=limit,
        temperature=temperature,
        seed=seed,
        groups=groups,
        lookup=lookup,
    )
    alone = [run(script, [p], replace(settings, method="ar")) for p in prompts]
    plain = [tokens_of(events)[0] for events in alone]
    lossless = run(script, prompts, replace(settings, lossless=True))
    assert tokens_of(lossless, len(prompts)) == plain
    drafted = run(script, prompts, settings)
    bare = replace(settings, groups="one", lookup=False)
    for row, _ in enumerate(prompts):
        plain_steps = steps_of(run(script, prompts, bare), row)
        assert [replace(step, settings=bare) for step in steps_of(drafted, row)] == plain_steps
    for row, prompt in enumerate(prompts):
        steps = steps_of(drafted, row)
        tokens = list(prompt)
        for step in steps:
            assert 1 <= len(step.accepted) <= block_size
            assert [slot.token for slot in step.proposals[: len(step.accepted)]] == list(
                step.accepted
            )
            if temperature == 0:
                first = run(script, [tokens], DecodeSettings(method="ar", max_new_tokens=1))
                assert step.accepted[0] == tokens_of(first)[0][0]
            tokens += step.accepted
        new = tokens[len(prompt) :]
        assert all(3 <= token < 16 or token == 2 for token in new)
        assert 2 not in new[:-1]
        assert len(new) <= limit
        assert steps[-1].stop == ("eos" if new[-1] == 2 else "limit")
