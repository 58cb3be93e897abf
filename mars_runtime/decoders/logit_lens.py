"""Run a forward pass again, in pieces, and read its predictions after every layer.

Each ``next`` on ``read_layers`` runs one piece, which takes less time than a forward pass: some
layers of a few earlier tokens, one layer of the pass, or the output head for a few hidden states.
So other runs on the same device wait for at most one piece. ``mars_runtime/layers.py`` defines and
interprets the results.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from mars_runtime.acceptance import DecodeError
from mars_runtime.decoders.base import Vocabulary, check_prompt, forbidden_ids
from mars_runtime.layers import Column, Fed, LayerPrediction, Layers
from mars_runtime.model.build import Model
from mars_runtime.model.forward import Branches, Layout, Part, SamplingMetadata
from mars_runtime.prefix_cache import PrefixCache
from mars_runtime.settings import MAX_FED

NUM_TOKENS = 16  # maximum number of tokens of the text before the pass in one piece
NUM_PARTS = 8  # pieces into which the layers are divided for the text before the pass
NUM_STATES = 8  # maximum number of hidden states that the output head reads in a piece
UNFIT = "This forward pass cannot be run again: choose another one."


def read_layers(
    model: Model,
    vocabulary: Vocabulary,
    fed: Fed,
    prefix_cache: PrefixCache | None = None,
) -> Generator[None, None, Layers]:
    """Return the predictions of a forward pass after each layer; yield after each piece of work.

    ``prefix_cache`` contains keys and values of earlier texts. Raises DecodeError if the model
    cannot run the forward pass.
    """
    _check(model, vocabulary, fed)
    with torch.inference_mode():
        reader = _LayerReader(model, vocabulary, fed)
    steps = reader.steps(prefix_cache)
    while True:
        with torch.inference_mode():
            try:
                next(steps)
            except StopIteration as done:
                layers: Layers = done.value
                return layers
        yield


def _check(model: Model, vocabulary: Vocabulary, fed: Fed) -> None:
    num_masks = sum(fed.groups)
    is_fit = (
        0 <= fed.cursor < len(fed.ids)
        and 1 <= len(fed.groups) <= fed.num_pending
        and min(fed.groups) >= 0
        and fed.num_pending + num_masks <= MAX_FED
        and (not num_masks or vocabulary.mask_id is not None)
    )
    if not is_fit:
        raise DecodeError(UNFIT)
    for ids in (fed.ids, fed.text):
        if ids:
            check_prompt(model, ids, 1)


class _LayerReader:
    """Runs one forward pass again, on a new KV cache."""

    def __init__(self, model: Model, vocabulary: Vocabulary, fed: Fed) -> None:
        self._model = model
        self._fed = fed
        self._mask_id = vocabulary.mask_id
        self._forbidden = forbidden_ids(vocabulary, model)
        self._cache: Any = model.new_cache(1, fed.cursor + MAX_FED)
        self._num_layers: int = model.config.num_layers

    def steps(self, prefix_cache: PrefixCache | None) -> Generator[None, None, Layers]:
        """Return the predictions after each layer; yield after each piece of work.

        Runs the text before the forward pass, then the pass itself, then the tokens that the run
        emitted at the positions of the masks.
        """
        fed, layout = self._fed, Layout(self._fed.num_pending, self._fed.groups)
        yield from self._restore_text(prefix_cache)
        tokens = [*fed.ids[fed.cursor :], *[self._mask_id or 0] * sum(fed.groups)]
        branches = None
        if any(fed.groups[:-1]):
            branches = Branches.of([layout], layout.num_fed)
        predictions = yield from self._predictions(tokens, branches)
        positions, roots, _ = layout.numbers(layout.num_fed)
        columns = tuple(
            Column(
                fed.cursor + position,
                None if number < fed.num_pending else fed.cursor + root,
                by_layer,
            )
            for number, (position, root, by_layer) in enumerate(
                zip(positions, roots, predictions, strict=True)
            )
        )
        return Layers(columns, (yield from self._real_columns(columns)))

    def _restore_text(self, prefix_cache: PrefixCache | None) -> Iterator[None]:
        """Restore the keys and values of the text before the forward pass."""
        unread = list(self._fed.ids[: self._fed.cursor])
        if prefix_cache is not None:
            for index, block in enumerate(prefix_cache.find(unread)):
                self._cache.put(0, index, block)
                self._cache.cursors[0] += prefix_cache.length
        size = -(-self._num_layers // NUM_PARTS)
        while (cursor := self._cache.cursors[0]) < len(unread):
            chunk = unread[cursor : cursor + NUM_TOKENS]
            yield from self._states(chunk, None, size)
            self._cache.cursors[0] += len(chunk)

    def _states(
        self, tokens: Sequence[int], branches: Branches | None, size: int
    ) -> Generator[None, None, list[Tensor]]:
        """Return the embeddings and the hidden states after every ``size`` layers: [1, Q, hidden]
        each.
        """
        fed = torch.tensor([list(tokens)])
        states: list[Tensor] = []
        bounds = (0, 0, *range(size, self._num_layers, size), self._num_layers)
        for begin, end in pairwise(bounds):
            part = Part(range(begin, end), states[-1] if states else None)
            states.append(self._model.hidden(fed, self._cache, branches, part))
            yield
        return states

    def _predictions(
        self, tokens: Sequence[int], branches: Branches | None
    ) -> Generator[None, None, list[tuple[LayerPrediction, ...]]]:
        """Return for each token its predictions before the first layer and after each layer."""
        states = yield from self._states(tokens, branches, 1)
        predictions: list[list[LayerPrediction]] = [[] for _ in tokens]
        sampling = SamplingMetadata(self._forbidden, ["probability"])
        for state in states:
            for first in range(0, len(tokens), NUM_STATES):
                piece = slice(first, min(first + NUM_STATES, len(tokens)))
                (proposals,) = self._model.read(state, piece, sampling)
                for column, proposal in zip(predictions[piece], proposals, strict=True):
                    column.append((proposal.token, proposal.confidence))
                yield
        return [tuple(column) for column in predictions]

    def _real_columns(self, columns: Sequence[Column]) -> Generator[None, None, tuple[Column, ...]]:
        """Return columns of the tokens that the run emitted where the pass had masks."""
        fed = self._fed
        wanted = {column.position for column in columns if column.root is not None}
        end = min(len(fed.text), max(wanted, default=-1) + 1)
        if fed.text[: fed.cursor] != fed.ids[: fed.cursor] or end <= fed.cursor:
            return ()
        predictions = yield from self._predictions(fed.text[fed.cursor : end], None)
        return tuple(
            Column(position, None, by_layer)
            for position, by_layer in enumerate(predictions, fed.cursor)
            if position in wanted
        )
