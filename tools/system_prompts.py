"""Compare system prompts and repetition penalties of the chat model by its answers.

``python tools/system_prompts.py --out FILE`` answers 30 short factual questions and 30 held-out
requests, six of each kind of ``mars_runtime/tasks``, once for each system prompt and each penalty.
It prints the answers and writes the counts: short questions answered correctly, answers that loop,
and tokens per forward pass up to the loop, with masks only and with prompt lookup. Decoding is
lossless, so the answers are plain AR's, and no figure depends on the speed of the machine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mars_runtime import folds  # noqa: E402
from mars_runtime.engine import Engine, Request  # noqa: E402
from mars_runtime.events import Event  # noqa: E402
from mars_runtime.model.load import Checkpoint, load_checkpoint  # noqa: E402
from mars_runtime.outputs import path_of, write_text  # noqa: E402
from mars_runtime.provenance import provenance  # noqa: E402
from mars_runtime.settings import DecodeSettings  # noqa: E402
from mars_runtime.tasks.requests import KINDS, request_tasks  # noqa: E402

CHECKPOINT = "mars-smollm2"
QUESTIONS = Path(__file__).with_name("short_questions.json")
"""Short questions, each with words of which a correct answer has one."""
SYSTEMS = (
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face",
    "You are a helpful assistant.",
)
"""The system prompt of the model's own template, and the shortest in common use."""
PENALTIES = (1.0, 1.05)
SHORT = "short"
SEED, NUM_DRAWN, NUM_OF_KIND = 31, 60, 6
"""The last few of many drawn prompts of a kind, which are not among the page's examples."""
DECODING = DecodeSettings(
    tau=0.0, block_size=4, lossless=True, mask_layout="every", max_new_tokens=160, stop_loops=True
)
SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class GradedQuestion:
    """A prompt, its kind, and the expected words: a correct answer contains one of them. Without
    expected words, every answer is accepted.
    """

    kind: str
    prompt: str
    expected: Sequence[str] = ()

    def is_correct(self, answer: str) -> bool:
        """Whether one of the expected words is in the answer; "0" is not in "-18.0"."""
        pattern = r"(?<!\w)(?<!\d[.,]){}(?!\w|[.,]\d)"
        return any(
            re.search(pattern.format(re.escape(word)), answer, re.I) for word in self.expected
        )


@dataclass(frozen=True, slots=True)
class PromptAnswer:
    """An answer: its text, whether the text repeats itself, and the tokens and forward passes up to
    the loop, with masks only and with prompt lookup.
    """

    text: str
    is_loop: bool
    num_tokens: int
    passes: int
    passes_with_lookup: int


def questions() -> Iterator[GradedQuestion]:
    """Yield the short questions, then the requests of each kind."""
    for prompt, expected in json.loads(QUESTIONS.read_text("utf-8")).items():
        yield GradedQuestion(SHORT, prompt, expected)
    for kind in KINDS:
        for task in request_tasks(kind, SEED, NUM_DRAWN)[-NUM_OF_KIND:]:
            yield GradedQuestion(kind, task.prompt)


class PromptRunner:
    """Runs one checkpoint, one answer at a time."""

    def __init__(self, checkpoint: Checkpoint, engine: Engine) -> None:
        self._checkpoint = checkpoint
        self._engine = engine

    def answer(self, question: GradedQuestion, system: str, penalty: float) -> PromptAnswer:
        """Decode twice: with masks only and with prompt lookup."""
        settings = replace(DECODING, repetition_penalty=penalty)
        ids = self._checkpoint.tokenizer.encode_prompt(
            question.prompt, before=[("system", system)] if system else []
        )
        masks = self._events(ids, settings)
        lookup = self._events(ids, replace(settings, lookup=True))
        tokens = folds.accepted_tokens(masks)
        loop = folds.loops_at(masks)
        num_tokens = len(tokens) if loop is None else loop
        text = self._checkpoint.tokenizer.decode(tokens)
        passes = [round(num_tokens / folds.tpf(events)) for events in (masks, lookup)]
        return PromptAnswer(text, loop is not None, num_tokens, *passes)

    def _events(self, ids: Sequence[int], settings: DecodeSettings) -> list[Event]:
        run = self._engine.submit(Request(ids, settings, SECONDS))
        run.wait()
        return list(run.events_since(0))


def main() -> None:
    """Answer all questions with each system prompt and penalty, print the answers, write
    ``--out``.
    """
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=path_of, default=Path("runs/system_prompts.json"))
    args = parser.parse_args()
    checkpoint = load_checkpoint(CHECKPOINT)
    result: dict[str, Any] = {"kind": "system prompts", "version": 1, **provenance(CHECKPOINT)}
    result["ways"] = []
    with Engine(checkpoint, max_runs=1, max_waiting=0) as engine:
        answers = PromptRunner(checkpoint, engine)
        for system in SYSTEMS:
            for penalty in PENALTIES:
                pairs = []
                print(f"\n=== {system!r}, repetition penalty {penalty:g}")
                for question in questions():
                    answer = answers.answer(question, system, penalty)
                    pairs.append((question, answer))
                    print(f"\n[{question.kind}] {question.prompt}\n{answer.text}", flush=True)
                way = {"system": system, "repetition_penalty": penalty, **counts(pairs)}
                result["ways"].append(way)
                print(f"\n{json.dumps(way)}", flush=True)
    write_text(args.out, json.dumps(result, ensure_ascii=False, indent=1))
    print(f"Written to {args.out}")


def counts(pairs: Sequence[tuple[GradedQuestion, PromptAnswer]]) -> dict[str, Any]:
    """Count correct short answers and loops, and tokens per pass of each kind and of all."""
    short = [answer for question, answer in pairs if question.kind == SHORT]
    correct = sum(question.is_correct(answer.text) for question, answer in pairs)
    loops = sum(answer.is_loop for _, answer in pairs)
    kinds = {
        kind: tokens_per_pass([answer for question, answer in pairs if question.kind == kind])
        for kind in (SHORT, *KINDS)
    }
    return {
        **{"num_short": len(short), "num_correct": correct},
        **{"num_answers": len(pairs), "num_loops": loops},
        "tokens_per_pass": {**kinds, "all": tokens_per_pass([answer for _, answer in pairs])},
    }


def tokens_per_pass(answers: Sequence[PromptAnswer]) -> dict[str, float]:
    """Return the number of tokens, and tokens per pass with masks only and with prompt lookup."""
    tokens = sum(answer.num_tokens for answer in answers)
    return {
        "tokens": tokens,
        "masks": tokens / sum(answer.passes for answer in answers),
        "lookup": tokens / sum(answer.passes_with_lookup for answer in answers),
    }


if __name__ == "__main__":
    main()
