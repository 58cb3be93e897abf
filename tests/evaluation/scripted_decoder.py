"""A decoder without a model: what it says is a function of the prompt ids and the settings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from mars_runtime.events import Event, Prefill, RowStep, Step, Stop
from mars_runtime.lab.evaluation.run import Subject
from mars_runtime.settings import DecodeSettings

EOS = 0


def answer_ids(prompt: Sequence[int], settings: DecodeSettings) -> list[int]:
    """Repeat the prompt and end. Unverified MARS below τ = 0.5 gets the first token wrong."""
    ids = [*prompt, EOS]
    is_wrong = settings.method == "mars" and not settings.lossless and settings.tau < 0.5
    if is_wrong:
        ids[0] += 1
    return ids[: settings.max_new_tokens]


class ScriptedDecoder:
    """Every forward takes ``num_proposals`` tokens of the answer. Counts the batches it served."""

    def __init__(self) -> None:
        self.batches: list[int] = []

    def __call__(
        self, prompts: Sequence[Sequence[int]], settings: DecodeSettings
    ) -> Iterator[Event]:
        self.batches.append(len(prompts))
        yield Prefill(sum(map(len, prompts)))
        answers = [answer_ids(prompt, settings) for prompt in prompts]
        start = 0
        while any(start < len(answer) for answer in answers):
            rows = [
                _row(row, answer, start, settings)
                for row, answer in enumerate(answers)
                if start < len(answer)
            ]
            yield Step(tuple(rows))
            start += settings.num_proposals


def _row(row: int, answer: list[int], start: int, settings: DecodeSettings) -> RowStep:
    accepted = tuple(answer[start : start + settings.num_proposals])
    is_last = start + len(accepted) >= len(answer)
    stop: Stop = "block"
    if is_last:
        stop = "eos" if accepted[-1] == EOS else "limit"
    return RowStep(row, start, start, 1, settings.num_proposals, (), accepted, 0, settings, stop)


def subject(decoder: ScriptedDecoder, name: str = "scripted") -> Subject:
    """Prompts are numbers of letters, text is letters."""
    return Subject(
        name=name,
        fingerprint="f00d",
        dtype="float32",
        encode_prompt=lambda text: [ord(letter) for letter in text],
        decode=decoder,
        to_text=lambda ids: "".join(chr(token) for token in ids if token != EOS),
    )
