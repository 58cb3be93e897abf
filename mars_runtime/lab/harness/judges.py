"""Score the answers to BIG-Bench Hard and HumanEval without downloads.

For these benchmarks lm-eval itself would download data or code. Generated programs run only in the
sandbox of this repository.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mars_runtime.tasks.python_functions import extract_code
from mars_runtime.tasks.sandbox import passes_test

WORDS = (("yes", "no"), ("true", "false"), ("valid", "invalid"))
"""Pairs of words that are the possible answers to some tasks of BIG-Bench Hard."""


def bbh_scores(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return the score 1 if the final answer of the text equals the target, else 0."""
    return {"exact_match": float(final_answer(results[0], doc["target"]) == tidy(doc["target"]))}


def humaneval_scores(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return the score 1 if the function passes its tests, else 0."""
    source = program(doc["prompt"], doc["entry_point"], results[0])
    return {"pass@1": float(passes_test(source, doc["entry_point"], doc["test"]))}


def program(prompt: str, name: str, answer: str) -> str:
    """Return the program that a prompt (signature and docstring of a function) and its answer form.

    If the answer defines the function again, this definition replaces the one in the prompt.
    """
    code = extract_code(answer)
    if f"def {name}(" in code:
        return prompt.rpartition(f"def {name}(")[0] + code
    return prompt + answer.partition("```")[0]


def final_answer(text: str, target: str) -> str:
    """Return the final answer in a text.

    Only the text after the last "answer is" is searched, if the text contains it. The final answer
    is the last part of the same form as the target: an option such as (B), a number, or a word of
    the same pair in WORDS. For other targets, it is the last line.
    """
    end = re.split(r"answer is:?|answer:", text, flags=re.IGNORECASE)[-1].strip()
    expected = tidy(target)
    if re.fullmatch(r"\([a-z]\)", expected):
        options = re.findall(r"\(([A-Z])\)", end) or re.findall(r"\b([A-Z])\b(?=[).:]|$)", end)
        return f"({options[-1].lower()})" if options else ""
    if re.fullmatch(r"-?\d+", expected):
        numbers = re.findall(r"-?\d+", end.replace(",", ""))
        return str(numbers[-1]) if numbers else ""
    for words in WORDS:
        if expected in words:
            options = re.findall(rf"\b({'|'.join(words)})\b", end.lower())
            return str(options[-1]) if options else ""
    lines = [line for line in end.splitlines() if line.strip()]
    return tidy(lines[-1]) if lines else ""


def tidy(text: str) -> str:
    """Return the text in lower case, with single spaces, without surrounding punctuation."""
    return " ".join(text.lower().split()).strip(" .\"'*`")
