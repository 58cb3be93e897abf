"""Answered prompts as training examples: cut, put in batches of few shapes, anchors drawn.

A batch is a function of (seed, step) and the texts alone, so a resumed run reads what the
uninterrupted one would have read. Knows no model.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from mars_runtime.lab.training.distill import store

WIDTHS = (96, 128, 192, 256, 320, 448, 640)
"""Widths that batches are padded to: with any width, an allocator falls to pieces."""
MIN_RESPONSE = 4


@dataclass(frozen=True, slots=True)
class Text:
    """ids of prompt and response; the response begins at ``start``."""

    kind: str
    ids: tuple[int, ...]
    start: int

    @property
    def anchors(self) -> range:
        """Positions after which a group of masks has something to predict: mask j of the group
        after p stands at p + j and predicts p + j + 1."""
        return range(self.start - 1, len(self.ids) - 2)


def read_texts(folder: Path) -> tuple[list[Text], list[Text]]:
    """(training, held out) from the answer files; cut at the largest width. Raises
    FileNotFoundError where there is nothing to train on."""
    parts: tuple[list[Text], list[Text]] = ([], [])
    for record in store.read(folder):
        ids = (*record.prompt, *record.response)[: WIDTHS[-1]]
        if len(ids) - len(record.prompt) >= MIN_RESPONSE:
            parts[record.held_out].append(Text(record.kind, ids, len(record.prompt)))
    if not parts[0]:
        raise FileNotFoundError(f"No answers to train on in {folder}: run distill first.")
    return parts


@dataclass(frozen=True, slots=True)
class Batch:
    """ids: [N, T]; anchors: [N, A] positions; is_real: [N, A], False where a text had fewer;
    start, length: [N], where the response begins and ends."""

    ids: Tensor
    anchors: Tensor
    is_real: Tensor
    start: Tensor
    length: Tensor

    @classmethod
    def of(cls, texts: Sequence[Text], num_anchors: int, rng: random.Random) -> Batch:
        """Right-padded texts, each with ``num_anchors`` drawn anchors, or all that it has."""
        width = next(w for w in WIDTHS if w >= max(len(t.ids) for t in texts))
        ids, anchors, is_real = [], [], []
        for text in texts:
            found = list(text.anchors)
            if len(found) > num_anchors:
                found = sorted(rng.sample(found, num_anchors))
            missing = num_anchors - len(found)
            ids.append([*text.ids, *[0] * (width - len(text.ids))])
            anchors.append([*found, *[0] * missing])
            is_real.append([*[True] * len(found), *[False] * missing])
        return cls(
            ids=torch.tensor(ids),
            anchors=torch.tensor(anchors),
            is_real=torch.tensor(is_real),
            start=torch.tensor([text.start for text in texts]),
            length=torch.tensor([len(text.ids) for text in texts]),
        )

    def targets(self, num_masks: int) -> tuple[Tensor, Tensor]:
        """What each mask predicts and whether there is such a token, both [N, A, masks]."""
        place = self.anchors[..., None] + torch.arange(2, num_masks + 2)
        inside = (place < self.length[:, None, None]) & self.is_real[..., None]
        clipped = place.clamp(max=self.ids.shape[1] - 1).flatten(1)
        return self.ids.gather(1, clipped).view(place.shape), inside


def epoch(texts: Sequence[Text], batch_tokens: int, seed: int, number: int) -> list[list[Text]]:
    """Batches of one pass over the texts: like widths together, in random order."""
    rng = random.Random(f"{seed}/{number}")
    by_width: dict[int, list[Text]] = {width: [] for width in WIDTHS}
    for text in rng.sample(list(texts), len(texts)):
        by_width[next(w for w in WIDTHS if w >= len(text.ids))].append(text)
    batches = [
        rows[i : i + max(1, batch_tokens // width)]
        for width, rows in by_width.items()
        for i in range(0, len(rows), max(1, batch_tokens // width))
    ]
    rng.shuffle(batches)
    return batches
