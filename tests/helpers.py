"""Stand-ins for checkpoints: a function instead of weights, small random weights, and weights that
are trained for seconds so that they predict some tokens."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from tiny_tokenizer import write_tokenizer
from torch import Tensor

from mars_runtime.model.captured import Bucket, CapturedForward, Record
from mars_runtime.model.forward import Branches, SamplingMetadata
from mars_runtime.runs.events import Event, Proposal, RowStep, Step
from mars_runtime.text import Tokenizer

Script = Callable[[tuple[int, ...]], Sequence[float]]
CPU = torch.device("cpu")
KEPT_BLOCK = 4  # slots of a block that a scripted cache keeps


def run_again(function: Callable[[], None]) -> Callable[[], None]:
    """Record for any device: a replay runs the function again."""
    return function


@dataclass(frozen=True)
class Ids:
    """A vocabulary without text. Ids at or above ``size`` are unused rows of the model."""

    size: int = 16
    mask_id: int | None = 1
    eos_ids: frozenset[int] = frozenset({2})
    forbidden_ids: frozenset[int] = frozenset({0, 1})


class ScriptedCache:
    """Remembers the token written at each slot, as a cache remembers its keys and values."""

    def __init__(self, rows: int, capacity: int) -> None:
        self.rows, self.capacity = rows, capacity
        self.cursors = [0] * rows
        self.slots: list[list[int | None]] = [[None] * capacity for _ in range(rows)]
        self.seen: list[tuple[int, ...]] = []
        self.captured = CapturedForward(max(rows, 1), capacity, 1, torch.long, CPU)

    @property
    def num_bytes(self) -> int:
        return self.rows * self.capacity

    def row(self, row: int) -> ScriptedCache:
        alone = ScriptedCache(0, self.capacity)
        alone.cursors, alone.slots = [self.cursors[row]], [self.slots[row]]
        return alone

    def clear(self, row: int, num_slots: int | None = None) -> None:
        self.cursors[row] = 0
        self.slots[row][:num_slots] = [None] * len(self.slots[row][:num_slots])
        assert not any(self.slots[row]), "tokens of an earlier row stay"

    def move(self, source: int, target: int, num_slots: int | None = None) -> None:
        self.slots[target][:] = self.slots[source]
        self.cursors[target] = self.cursors[source]

    def block(self, row: int, index: int) -> list[int | None]:
        return self.slots[row][KEPT_BLOCK * index : KEPT_BLOCK * (index + 1)]

    def put(self, row: int, index: int, block: list[int | None]) -> None:
        self.slots[row][KEPT_BLOCK * index : KEPT_BLOCK * (index + 1)] = block

    def swap(self, row: int, other: int) -> None:
        for list_ in (self.slots, self.cursors):
            list_[row], list_[other] = list_[other], list_[row]  # type: ignore[call-overload]


@dataclass(frozen=True)
class Hidden:
    """What a forward of a scripted model leaves: for each row the prefix that each slot saw."""

    prefixes: list[list[tuple[int, ...]]]

    def __post_init__(self) -> None:
        assert all(None not in prefix for row in self.prefixes for prefix in row), "a hole"

    def __getitem__(self, rows: list[int]) -> Hidden:
        return Hidden([self.prefixes[row] for row in rows])


class ScriptedModel:
    """Logits are ``script(prefix)``: the prefix is what the cache remembers up to the slot."""

    device = CPU
    dtype = torch.float32
    record: Record | None = None

    def __init__(self, script: Script, vocab_size: int = 18, max_positions: int = 512) -> None:
        self.config = SimpleNamespace(vocab_size=vocab_size, max_positions=max_positions)
        self.script = script
        self.forwards: list[list[list[int]]] = []

    def new_cache(self, rows: int, capacity: int) -> ScriptedCache:
        return ScriptedCache(rows, capacity)

    def forward(
        self, tokens: Tensor, cache: ScriptedCache, head: Any, branches: Branches | None = None
    ) -> Tensor | None:
        if head is not None:
            return self.logits(self.hidden(tokens, cache, branches), head)
        self._write(tokens.tolist(), cache)
        return None

    def hidden(
        self, tokens: Tensor, cache: ScriptedCache, branches: Branches | None = None
    ) -> Hidden:
        fed = tokens.tolist()
        self.forwards.append(fed)
        if self.record is not None:
            cursors = cache.cursors[: len(fed)]
            bucket = cache.captured.bucket(len(fed), tokens.shape[1], cursors)
            if bucket is not None:
                return self._replayed(bucket, tokens, cache, branches)
        self._write(fed, cache)
        rows = zip(cache.slots, cache.cursors, fed, strict=False)
        return Hidden([seen(*row, branches, number) for number, row in enumerate(rows)])

    def _replayed(
        self, bucket: Bucket, tokens: Tensor, cache: ScriptedCache, branches: Branches | None
    ) -> Hidden:
        """The same by a recorded forward, padded up to its bucket; its states are numbers of the
        prefixes that the slots saw."""
        prefixes: list[tuple[int, ...]] = cache.seen

        def run(fed: Tensor, cursors: Tensor, tree: Branches, context: int) -> Tensor:
            prefixes.clear()
            num = fed.shape[1]
            for row, first in enumerate(cursors.tolist()):
                slots = cache.slots[row]
                is_parked = first + num == len(slots)
                assert first + num <= len(slots), "written behind the end"
                assert is_parked or first + num <= context, "read behind the context"
                slots[first : first + num] = fed[row].tolist()
                prefixes.extend(seen(slots, first, slots[first : first + num], tree, row))
            return torch.arange(len(prefixes)).view(*fed.shape, 1)

        states = cache.captured(
            *(bucket, tokens, cache.cursors[: len(tokens)], branches), lambda: run, run_again
        )
        for row in range(len(tokens), cache.rows):  # padding writes into rows that sit out
            first = cache.cursors[row]
            cache.slots[row][first:] = [None] * (cache.capacity - first)
        return Hidden([[prefixes[at] for at in row] for row in states.squeeze(-1).tolist()])

    def predict(
        self, hidden: Hidden, head: Tensor | slice, sampling: SamplingMetadata
    ) -> list[list[Proposal]]:
        return sampling.proposals(self.logits(hidden, head))

    def logits(self, hidden: Hidden, head: Tensor | slice) -> Tensor:
        """Only the slots that are asked for may cost anything."""
        if isinstance(head, slice):
            requests = [prefixes[head] for prefixes in hidden.prefixes]
        else:
            slots = zip(hidden.prefixes, head.tolist(), strict=True)
            requests = [[prefixes[slot] for slot in row] for prefixes, row in slots]
        return torch.tensor([[self.script(prefix) for prefix in row] for row in requests])

    def _write(self, fed: list[list[int]], cache: ScriptedCache) -> None:
        for row, ids in enumerate(fed):
            first = cache.cursors[row]
            assert first + len(ids) <= cache.capacity, "written behind the end of the cache"
            cache.slots[row][first : first + len(ids)] = ids


def seen(
    slots: list[Any], first: int, fed: Sequence[int], branches: Branches | None, row: int
) -> list[tuple[int, ...]]:
    """What each token that is fed sees, which must be as long as its position implies."""
    columns: Iterable[Any] = ((q, 0, 0) for q in range(len(fed)))
    if branches is not None:
        numbers = (branches.positions, branches.roots, branches.starts)
        columns = zip(*(number[row].tolist() for number in numbers), strict=True)
    prefixes = []
    for q, (position, root, start) in enumerate(columns):
        assert root <= start <= q
        prefixes.append(tuple(slots[: first + root] + slots[first + start : first + q + 1]))
        assert len(prefixes[-1]) == first + position + 1, "a token at a wrong position"
    return prefixes


def peaked(token: int, height: float = 6.0, vocab_size: int = 18) -> list[float]:
    logits = [0.01 * i for i in range(vocab_size)]
    logits[token] += height
    return logits


def counting(prefix: tuple[int, ...], wrong: int = 0) -> list[float]:
    """Counts 3, 4 ... 15, 3 ...; masks count on with certainty, but take ``wrong`` for 15."""
    last = max(place for place, token in enumerate(prefix) if token != 1)
    token = 3 + (prefix[last] - 3 + len(prefix) - last) % 13
    return peaked(15 if token == wrong and prefix[-1] == 1 else token, 30.0)


def foresight_script(seed: int, eos_share: float = 0.05, ids: Ids | None = None) -> Script:
    """A language whose next token the real prefix decides. After j masks the script guesses the
    token j positions on, right two times in three, with a confidence that has little to do with it.
    """
    ids = ids or Ids()

    @cache  # slow twins ask for the same prefixes again and again
    def after(prefix: tuple[int, ...]) -> int:
        rng = random.Random(f"{seed}/{prefix[-3:]}/{len(prefix)}")
        return min(ids.eos_ids) if rng.random() < eos_share else rng.randrange(3, ids.size)

    @cache
    def script(prefix: tuple[int, ...]) -> list[float]:
        real = tuple(token for token in prefix if token != ids.mask_id)
        rng = random.Random(f"{seed}/{prefix}")
        for _ in range(len(prefix) - len(real)):
            real = (*real, after(real))
        guess = after(real)
        if ids.mask_id in prefix and rng.random() < 0.33:
            guess = rng.randrange(3, ids.size)
        logits = peaked(guess, rng.uniform(1.0, 9.0))
        logits[1] += rng.uniform(0.0, 12.0)  # the mask token often wins the plain argmax
        logits[17] += rng.uniform(0.0, 12.0)  # and so does a row without a token
        return logits

    return script


def steps_of(events: Iterable[Event], row: int = 0) -> list[RowStep]:
    steps = (event for event in events if isinstance(event, Step))
    return [item for step in steps for item in step.rows if item.row == row]


def tokens_of(events: Iterable[Event], num_rows: int = 1) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(num_rows)]
    for event in events:
        if isinstance(event, Step):
            for step in event.rows:
                assert step.start == len(rows[step.row])
                rows[step.row] += step.accepted
    return rows


def hf_config(tokenizer: Tokenizer, **changes: Any) -> Any:
    """A small Qwen2 configuration with a few more rows than the tokenizer has tokens."""
    from transformers import Qwen2Config

    return Qwen2Config(**(_shape(tokenizer) | changes))


def qwen3_config(tokenizer: Tokenizer, **changes: Any) -> Any:
    """A small Qwen3 configuration: heads of 32, which together are wider than the hidden states."""
    from transformers import Qwen3Config

    wide = {"hidden_size": 64, "head_dim": 32}
    return Qwen3Config(**(_shape(tokenizer) | wide | changes))


def _shape(tokenizer: Tokenizer) -> dict[str, Any]:
    return {
        "vocab_size": tokenizer.size + 7, "hidden_size": 48, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
        "max_position_embeddings": 512, "tie_word_embeddings": True, "initializer_range": 0.25,
    }  # fmt: skip


def hf_model(config: Any, seed: int = 0) -> Any:
    """transformers' model of a configuration, random biases and norms included."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith("bias"):
                weight.normal_(0, 0.3)
            if "norm" in name:
                weight.add_(torch.randn_like(weight) * 0.2)
    return model


def write_checkpoint(
    folder: Path, seed: int = 0, make_config: Callable[..., Any] = hf_config, **changes: Any
) -> Path:
    tokenizer = Tokenizer.from_dir(write_tokenizer(folder))
    hf_model(make_config(tokenizer, **changes), seed).save_pretrained(folder)
    return folder


def word_sequence(rng: random.Random, length: int, eos: int) -> list[int]:
    """Words of a made-up language: their insides are predictable, their beginnings are not."""
    lexicon = random.Random(7)
    words = [[lexicon.randrange(10, 300) for _ in range(lexicon.randint(2, 7))] for _ in range(16)]
    ids: list[int] = []
    while len(ids) < length:
        ids += rng.choice(words) if rng.random() > 0.03 else [eos]
        if ids[-1] == eos:
            ids += [eos] * length
    return ids[:length]


def train_foreseeing(
    folder: Path, num_steps: int = 120, make_config: Callable[..., Any] = hf_config
) -> Path:
    """A checkpoint folder with a model that can draft ``word_sequence``; takes a few seconds."""
    tokenizer = Tokenizer.from_dir(write_tokenizer(folder))
    model = hf_model(make_config(tokenizer, initializer_range=0.05, hidden_size=64))
    eos, mask = tokenizer.end_id, tokenizer.mask_id
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    rng = random.Random(0)
    for step in range(num_steps):
        rows = [word_sequence(rng, 33, eos) for _ in range(32)]
        inputs, labels = torch.tensor(rows)[:, :-1].clone(), torch.tensor(rows)[:, 1:].clone()
        for row in range(len(rows)):
            first = rng.randrange(4, 25)
            inputs[row, first : first + 7] = mask
            labels[row, first + 7 :] = -100
        loss = torch.nn.functional.cross_entropy(
            model(inputs).logits.flatten(0, 1), labels.flatten(), ignore_index=-100
        )
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = 4e-3 * (1 - step / num_steps)
        optimizer.step()
    model.save_pretrained(folder)
    return folder
