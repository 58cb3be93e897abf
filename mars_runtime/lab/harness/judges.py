"""Whether an answer to a benchmark's question is right, where lm-eval's own way needs the network.

Text in, scores out; knows no model and no files. Generated programs run in the sandbox only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from mars_runtime.tasks.python_functions import extract_code
from mars_runtime.tasks.sandbox import passes_test

WORDS = (("yes", "no"), ("true", "false"), ("valid", "invalid"))
"""Answers of BIG-Bench Hard that are one of two words."""


def bbh_scores(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """For lm-eval: 1 where the answer that the text ends with is the target."""
    return {"exact_match": float(final_answer(results[0], doc["target"]) == tidy(doc["target"]))}


def humaneval_scores(doc: Mapping[str, Any], results: Sequence[str]) -> dict[str, float]:
    """For lm-eval: 1 where the function passes its test."""
    source = program(doc["prompt"], doc["entry_point"], results[0])
    return {"pass@1": float(passes_test(source, doc["entry_point"], doc["test"]))}


def program(prompt: str, name: str, answer: str) -> str:
    """What an answer makes of a prompt that ends with a signature and what it is to do: the code of
    the answer behind what stands before the signature, or behind all of it where the answer does
    not define the function anew."""
    code = extract_code(answer)
    if f"def {name}(" in code:
        return prompt.rpartition(f"def {name}(")[0] + code
    return prompt + answer.partition("```")[0]


def final_answer(text: str, target: str) -> str:
    """The last thing in the text that has the form of the target: an option such as (B), one of two
    words, a number, or else the last line that says something, behind any "answer is"."""
    said = re.split(r"answer is:?|answer:", text, flags=re.IGNORECASE)[-1].strip()
    wanted = tidy(target)
    if re.fullmatch(r"\([a-z]\)", wanted):
        found = re.findall(r"\(([A-Z])\)", said) or re.findall(r"\b([A-Z])\b(?=[).:]|$)", said)
        return f"({found[-1].lower()})" if found else ""
    if re.fullmatch(r"-?\d+", wanted):
        numbers = re.findall(r"-?\d+", said.replace(",", ""))
        return str(numbers[-1]) if numbers else ""
    for words in WORDS:
        if wanted in words:
            found = re.findall(rf"\b({'|'.join(words)})\b", said.lower())
            return str(found[-1]) if found else ""
    lines = [line for line in said.splitlines() if line.strip()]
    return tidy(lines[-1]) if lines else ""


def tidy(text: str) -> str:
    """In lower case, single spaces, without a full stop or quotes around it."""
    return " ".join(text.lower().split()).strip(" .\"'*`")
