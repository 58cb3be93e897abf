"""Count texts written by people that the detection of loops would stop by mistake.

    python tools/human_loops.py FOLDER --checkpoint mars-smollm2

Reads every ``.txt``, ``.md``, ``.jsonl`` and ``.jsonl.gz`` file in the folder. All strings of a
JSON line form one text; a plain file is cut into texts of 3,000 characters. Prints each file with
its number of texts, the number of texts in which ``mars_runtime/loops.py`` finds a loop, and the
repeated words.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from mars_runtime.loops import find_loop  # noqa: E402
from mars_runtime.model.load import load_checkpoint  # noqa: E402

PIECE = 3000  # characters per text of a plain file
KINDS = (".txt", ".md", ".jsonl", ".gz")
SHOWN = 80  # printed characters of a loop


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--checkpoint", default="mars-smollm2", help="whose tokens are counted")
    args = parser.parse_args()
    tokenizer = load_checkpoint(args.checkpoint, device="cpu").tokenizer
    num_texts = num_stopped = 0
    for path in sorted(path for path in args.folder.rglob("*") if path.suffix in KINDS):
        with_loop, every = [], list(texts(path))
        for text in every:
            ids = tokenizer.encode(text)
            if (loop := find_loop(ids)) is not None:
                with_loop.append(tokenizer.decode(ids[loop.kept : loop.end]))
        print(f"{path.relative_to(args.folder)}: {len(with_loop)} of {len(every):,}")
        for repeated in with_loop:
            print(f"    {repeated[:SHOWN]!r}")
        num_texts, num_stopped = num_texts + len(every), num_stopped + len(with_loop)
    print(f"{num_stopped} of {num_texts:,} texts would be stopped")


def texts(path: Path) -> Iterator[str]:
    """Yield the texts of a file."""
    whole = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    text = whole.decode("utf-8")
    if ".jsonl" in path.name:
        yield from ("\n".join(strings(json.loads(line))) for line in text.splitlines() if line)
        return
    yield from (text[first : first + PIECE] for first in range(0, len(text), PIECE))


def strings(value: Any) -> Iterator[str]:
    """Yield all strings in a value, in order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


if __name__ == "__main__":
    main()
