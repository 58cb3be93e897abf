"""Scores of answers for benchmarks that lm-eval scores with a network.

Generated programs run in the sandbox only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mars_runtime.tasks.python_functions import extract_code
from mars_runtime.tasks.sandbox import passes_test

WORDS = (("yes", "no"), ("true", "false"), ("valid", "invalid"))
"""Pairs of words of which an answer to BIG-Bench Hard is one."""


def bbh_scores(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return 1 if the final answer of the text is the target."""
    return {"exact_match": float(final_answer(results[0], doc["target"]) == tidy(doc["target"]))}


def humaneval_scores(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """Return 1 if the function passes its test."""
    source = program(doc["prompt"], doc["entry_point"], results[0])
    return {"pass@1": float(passes_test(source, doc["entry_point"], doc["test"]))}


def program(prompt: str, name: str, answer: str) -> str:
    """Return the program of a prompt, which ends with a signature and a docstring, and an answer.

    An answer that defines the function again replaces them.
    """
    code = extract_code(answer)
    if f"def {name}(" in code:
        return prompt.rpartition(f"def {name}(")[0] + code
    return prompt + answer.partition("```")[0]


def final_answer(text: str, target: str) -> str:
    """Return the last part of the text, after any "answer is", that has the form of the target: an
    option such as (B), one of two words, a number, or else the last line with text."""
    said = re.split(r"answer is:?|answer:", text, flags=re.IGNORECASE)[-1].strip()
    wanted = tidy(target)
    if re.fullmatch(r"\([a-z]\)", wanted):
        options = re.findall(r"\(([A-Z])\)", said) or re.findall(r"\b([A-Z])\b(?=[).:]|$)", said)
        return f"({options[-1].lower()})" if options else ""
    if re.fullmatch(r"-?\d+", wanted):
        numbers = re.findall(r"-?\d+", said.replace(",", ""))
        return str(numbers[-1]) if numbers else ""
    for words in WORDS:
        if wanted in words:
            options = re.findall(rf"\b({'|'.join(words)})\b", said.lower())
            return str(options[-1]) if options else ""
    lines = [line for line in said.splitlines() if line.strip()]
    return tidy(lines[-1]) if lines else ""


def tidy(text: str) -> str:
    """Return the text in lower case, with single spaces, without quotes around it."""
    return " ".join(text.lower().split()).strip(" .\"'*`")
