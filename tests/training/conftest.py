"""The folder of training texts, small."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

BENCHMARK = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen"
STORY = "The fox went to the old mill. She saw a lamp there, and it was lit. " * 6


@pytest.fixture(scope="session")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 tales of eight sections, and prompts of which one is of a benchmark."""
    folder = tmp_path_factory.mktemp("texts")
    sections = [
        {"tale": f"tale-{n}", "section": part, "text": f"Tale {n} went on to part {part}. {STORY}"}
        for n in range(60)
        for part in range(8)
    ]
    question = {"sections": "1", "question": "What was lit?", "answer": "a lamp"}
    files = {
        "fairytale_sections_train": sections,
        "fairytale_questions_train": [
            *({"tale": f"tale-{n}", **question} for n in range(60)),
            {"tale": "tale-1", **question, "answer": "the stars"},
        ],
        "chat_prompts_train": [{"prompt": BENCHMARK}, {"prompt": "Tell me a joke."}],
        "chat_prompts_more": [{"prompt": "Explain Ohm's law."}],
        "gsm8k_train": [{"question": f"What is {n} and {n}?", "answer": "5"} for n in range(50)],
        "benchmarks/some": [{"prompt": {"inner": ["short", BENCHMARK]}, "number": 3}],
    }
    (folder / "benchmarks").mkdir()
    for name, rows in files.items():
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"{name}.jsonl").write_text(lines, encoding="utf-8")
    chapter = f"{STORY}\n\n" * 8
    classics = f"<<<BOOK A/B>>>\n# Title: B\n\n## THE FOX\n\n{chapter}\n## Chapter 1\n\n{chapter}"
    (folder / "childrens_classics.txt").write_text(classics, encoding="utf-8")
    return folder
