"""MARS decoding in transformers' ``generate`` against the runtime: same tokens, same passes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from helpers import steps_of, tokens_of
from law_checkpoints import load, run, task_prompts, word_prompts
from transformers import AutoModelForCausalLM, DynamicCache, MistralConfig

from mars_runtime.model.load import Checkpoint
from mars_runtime.settings import DecodeSettings

REPOSITORY = Path(__file__).parents[2] / "integrations" / "transformers"
SETTINGS: dict[str, dict[str, Any]] = {
    "usual": {"tau": 0.95, "block_size": 4},
    "bold": {"tau": 0.5, "block_size": 8},
    "lossless": {"tau": 0.0, "block_size": 8, "lossless": True},
    "lossless, few drafts": {"tau": 0.9, "block_size": 3, "lossless": True},
}
LIMIT = 24
CUSTOM = {"custom_generate": str(REPOSITORY), "trust_remote_code": True}


@pytest.fixture(scope="module", autouse=True)
def _own_modules(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """transformers copies the code that it runs; here into a folder of the test."""
    with pytest.MonkeyPatch.context() as patch:
        folder = str(tmp_path_factory.mktemp("modules"))
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", folder)
        patch.syspath_prepend(folder)
        yield


class Theirs:
    """A checkpoint in transformers' class, decoded with the settings of the runtime."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.model = AutoModelForCausalLM.from_pretrained(checkpoint.path, dtype=torch.float32)
        tokenizer, size = checkpoint.tokenizer, checkpoint.model.config.vocab_size
        self.options = {
            "suppress_tokens": sorted(tokenizer.forbidden_ids | set(range(tokenizer.size, size))),
            "eos_token_id": sorted(tokenizer.eos_ids),
            "pad_token_id": tokenizer.pad_id,
            "max_new_tokens": LIMIT,
        }

    def generate(self, prompt: Sequence[int], **options: Any) -> Any:
        given = {**CUSTOM, **self.options, "return_dict_in_generate": True, **options}
        return self.model.generate(torch.tensor([prompt]), **given)

    def answer(self, prompt: Sequence[int], **options: Any) -> list[int]:
        answer: list[int] = self.generate(prompt, **options).sequences[0, len(prompt) :].tolist()
        return answer


@pytest.fixture(scope="module")
def foreseeing(foreseeing_folder: Path) -> Checkpoint:
    return load(str(foreseeing_folder))


@pytest.fixture(scope="module")
def theirs(foreseeing: Checkpoint) -> Theirs:
    return Theirs(foreseeing)


def check_same(checkpoint: Checkpoint, prompts: Any, settings: dict[str, Any]) -> float:
    """Compare tokens and passes of every prompt; return tokens per forward."""
    theirs, num_tokens, num_forwards = Theirs(checkpoint), 0, 0
    for prompt in prompts:
        events = run(checkpoint, [prompt], DecodeSettings(max_new_tokens=LIMIT, **settings))
        answer = theirs.generate(prompt, **settings)
        assert answer.sequences[0].tolist() == [*prompt, *tokens_of(events)[0]]
        assert answer.num_forwards == len(steps_of(events))
        num_tokens += len(tokens_of(events)[0])
        num_forwards += answer.num_forwards
    return num_tokens / num_forwards


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_tokens_and_passes_are_those_of_the_runtime(
    random_folder: Path, foreseeing: Checkpoint, settings: dict[str, Any]
) -> None:
    random = load(str(random_folder))
    check_same(random, word_prompts(random, 8), settings)
    assert check_same(foreseeing, word_prompts(foreseeing, 8), settings) > 1
    assert check_same(load("mars-tiny"), task_prompts("mars-tiny", 6), settings) > 1.5


@pytest.mark.parametrize(
    "changes",
    [{"repetition_penalty": 1.3}, {"min_new_tokens": 12}, {"no_repeat_ngram_size": 2}],
    ids=str,
)
def test_lossless_text_is_that_of_generate_with_any_logits_processor(
    foreseeing: Checkpoint, theirs: Theirs, changes: dict[str, Any]
) -> None:
    num_forwards = num_tokens = 0
    for prompt in word_prompts(foreseeing, 10, seed=3):
        ordinary = {"custom_generate": None, "trust_remote_code": None, "do_sample": False}
        wanted = theirs.answer(prompt, **ordinary, **changes)
        answer = theirs.generate(prompt, **SETTINGS["lossless"], **changes)
        assert answer.sequences[0, len(prompt) :].tolist() == wanted
        num_forwards, num_tokens = num_forwards + answer.num_forwards, num_tokens + len(wanted)
    assert num_forwards < num_tokens


def test_a_checkpoint_may_bring_it_along(
    foreseeing: Checkpoint, theirs: Theirs, tmp_path: Path
) -> None:
    folder = shutil.copytree(foreseeing.path, tmp_path / "own")
    shutil.copytree(REPOSITORY / "custom_generate", folder / "custom_generate")
    model = AutoModelForCausalLM.from_pretrained(folder, trust_remote_code=True)
    (prompt,) = word_prompts(foreseeing, 1)
    ids = torch.tensor([prompt])
    answer = model.generate(input_ids=ids, **SETTINGS["bold"], **theirs.options)
    assert answer[0, len(prompt) :].tolist() == theirs.answer(prompt, **SETTINGS["bold"])


def test_a_conversation_goes_on_with_the_cache_of_its_last_turn(
    foreseeing: Checkpoint, theirs: Theirs
) -> None:
    for settings in SETTINGS.values():
        for prompt in word_prompts(foreseeing, 3, seed=8):
            first = theirs.generate(prompt, max_new_tokens=9, **settings)
            longer = [*first.sequences[0].tolist(), *prompt]
            assert first.cache.get_seq_length() < len(longer) - len(prompt)
            second = theirs.answer(longer, cache=first.cache, **settings)
            assert second == theirs.answer(longer, **settings)


def test_a_streamer_gets_every_token_and_criteria_end_an_answer_within_a_pass(
    foreseeing: Checkpoint, theirs: Theirs
) -> None:
    for prompt in word_prompts(foreseeing, 6, seed=4):
        whole = theirs.answer(prompt, **SETTINGS["bold"])
        stop = whole[len(whole) // 2]

        def is_stop(ids: torch.Tensor, scores: Any, stop: int = stop, **_: Any) -> torch.Tensor:
            return ids[:, -1] == stop

        put: list[torch.Tensor] = []
        ended: list[bool] = []
        streamer = SimpleNamespace(put=put.append, end=lambda ended=ended: ended.append(True))
        chosen = {"stopping_criteria": [is_stop], "streamer": streamer, **SETTINGS["bold"]}
        assert theirs.answer(prompt, **chosen) == whole[: whole.index(stop) + 1]
        assert torch.cat([ids.flatten() for ids in put]).tolist() == [
            *(*prompt, *whole[: whole.index(stop) + 1])
        ]
        assert ended == [True]
        cut = theirs.generate(prompt, stopping_criteria=[is_stop], **SETTINGS["lossless"])
        assert cut.cache.get_seq_length() < cut.sequences.shape[1]
        for limit in (1, 2, 5):
            assert theirs.answer(prompt, max_new_tokens=limit, **SETTINGS["bold"]) == whole[:limit]


def test_the_mask_is_found_or_given_and_never_written(
    foreseeing: Checkpoint, theirs: Theirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    (prompt,) = word_prompts(foreseeing, 1)
    wanted = theirs.answer(prompt, block_size=8, tau=0.0)
    mask = foreseeing.tokenizer.mask_id
    assert theirs.answer(prompt, block_size=8, tau=0.0, mask_token_id=mask) == wanted
    other = wanted[0]
    assert other not in theirs.answer(prompt, block_size=8, tau=0.0, mask_token_id=other)
    monkeypatch.setattr(theirs.model, "name_or_path", "")
    with pytest.raises(ValueError, match=r"names no mask token .* give mask_token_id"):
        theirs.answer(prompt)
    monkeypatch.setattr(theirs.model.config, "mask_token_id", mask, raising=False)
    assert theirs.answer(prompt, block_size=8, tau=0.0) == wanted


SLIDING = DynamicCache(config=MistralConfig(sliding_window=2, num_hidden_layers=1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"block_size": 0}, "block_size must be from 1 to 64, got 0"),
        ({"tau": 1.5}, "tau must be from 0 to 1, got 1.5"),
        ({"do_sample": True}, "MARS decoding is greedy"),
        ({"num_return_sequences": 2}, "one prompt without padding|num_return_sequences"),
        ({"attention_mask": torch.tensor([[0, 1, 1]])}, "one prompt without padding"),
        ({"cache_implementation": "static"}, "needs a DynamicCache, got StaticCache"),
        ({"cache": SLIDING}, "cannot crop a cache with a DynamicSlidingWindowLayer"),
    ],
)
def test_what_it_does_not_do_gets_a_sentence(
    theirs: Theirs, options: dict[str, Any], sentence: str
) -> None:
    passes: list[Any] = []
    hook = theirs.model.register_forward_pre_hook(lambda *given: passes.append(given))
    with hook, pytest.raises(ValueError, match=sentence):
        theirs.generate([5, 6, 7], **options)
    assert not passes
