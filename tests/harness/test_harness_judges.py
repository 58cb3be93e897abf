"""What counts as a right answer to a benchmark's question; programs run in the sandbox."""

from __future__ import annotations

import pytest

from mars_runtime.lab.harness.judges import bbh_scores, final_answer, humaneval_scores, program

PROMPT = "from typing import List\n\n\ndef total(xs: List[int]) -> int:\n    '''Add.'''\n"
TEST = "def check(candidate):\n    assert candidate([1, 2]) == 3\n    assert candidate([]) == 0\n"
DOC = {"prompt": PROMPT, "entry_point": "total", "test": TEST}


@pytest.mark.parametrize(
    ("text", "target", "answer"),
    [
        ("Not (A). The answer is (B).", "(B)", "(b)"),
        ("So the answer is: C", "(C)", "(c)"),
        ("(A) or maybe (D)", "(B)", "(d)"),
        ("Yes, since no. The answer is Yes.", "No", "yes"),
        ("It is invalid.", "valid", "invalid"),
        ("1,200 + 34 = 1,234", "24", "1234"),
        ("First.\nThe answer is: apple pear", "apple pear", "apple pear"),
        ("", "(A)", ""),
        ("Who knows?", "True", ""),
    ],
)
def test_the_last_answer_of_the_targets_form_counts(text: str, target: str, answer: str) -> None:
    assert final_answer(text, target) == answer


def test_scores_of_bbh() -> None:
    assert bbh_scores({"target": "] )"}, ["The answer is: ] )"]) == {"exact_match": 1.0}
    assert bbh_scores({"target": "(B)"}, ["The answer is (A)."]) == {"exact_match": 0.0}


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("```python\ndef total(xs: List[int]) -> int:\n    return sum(xs)\n```\nIt adds.", 1.0),
        ("    return sum(xs)\n```", 1.0),
        ("```python\ndef total(xs):\n    return len(xs)\n```", 0.0),
        ("```python\ndef total(xs):\n    import os\n    return sum(xs)\n```", 0.0),
        ("I am sorry.", 0.0),
    ],
)
def test_functions_are_run_against_their_test(answer: str, score: float) -> None:
    assert humaneval_scores(DOC, [answer]) == {"pass@1": score}


def test_a_function_that_is_written_anew_keeps_what_stood_before_it() -> None:
    source = program(
        "import math\n\ndef f(x):\n    '''f'''\n", "f", "```\ndef f(x):\n    pass\n```"
    )
    assert source == "import math\n\ndef f(x):\n    pass\n"
