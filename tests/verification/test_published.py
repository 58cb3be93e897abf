"""The page on a published checkpoint: what stands on it was found, and nothing in it has a meaning
in Markdown that its author did not give it."""

from __future__ import annotations

import argparse
import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from mars_runtime.lab.benchmark import plan
from mars_runtime.lab.benchmark.elsewhere import Decoding
from mars_runtime.lab.benchmark.paired import (
    Chunk,
    Question,
    Sample,
    TimedAnswer,
    TimedRow,
    one_row,
)
from mars_runtime.lab.verification import cli, published
from mars_runtime.lab.verification.laws import Mismatch
from tests.published import HUB, REVISION, in_hub_cache, write_published

SECTIONS = [
    "Files",
    "Tokens and template",
    "What AR answers",
    "Logits",
    "Tokens per forward, and the lossless law",
    "Speed",
]


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of the hub's client with a tiny checkpoint in it."""
    home = tmp_path_factory.mktemp("home")
    in_hub_cache(write_published(home / "made"), home)
    return home / "hub"


@pytest.fixture(autouse=True)
def _offline(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    from huggingface_hub import constants

    threads = torch.get_num_threads()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(cache))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    yield
    torch.set_num_threads(threads)


class StandIn:
    """llama.cpp, as far as the page asks it."""

    version = system = "a stand-in"

    def ask(self, question: Question, decoding: Decoding) -> TimedAnswer:
        moments = [0.5 * (at + 1) for at in range(decoding.max_new_tokens)]
        return TimedAnswer((one_row([5] * len(moments), moments),), moments[-1], len(moments))

    def close(self) -> None:
        """Nothing is running."""


def asked(out: Path, *more: str, name: str = "mars-0.5b-blk4") -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    given = ["verify", "published", "--checkpoint", name, "--prompts", "1", "--threads", "1"]
    return parser.parse_args([*given, "--max-new-tokens", "6", "--out", str(out), *more])


@pytest.fixture(scope="module")
def page(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    from huggingface_hub import constants

    started: list[Path] = []

    def start(interpreter: str, path: Path, num_tokens: int) -> StandIn:
        assert interpreter == "PYTHON"
        assert path.read_bytes()[:4] == b"GGUF"
        started.append(path)
        return StandIn()

    out = tmp_path_factory.mktemp("page") / "published.md"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(cache))
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        patch.setattr(published, "LlamaCpp", start)
        assert cli.run(asked(out, "--llama-cpp", "PYTHON")) == 0
    assert len(started) == 1
    return out.read_text(encoding="utf-8")


def test_it_says_what_it_is_about(page: str) -> None:
    assert page.startswith("# mars-0.5b-blk4, as it was found\n")
    assert re.findall(r"^## (.+)$", page, re.MULTILINE) == SECTIONS
    assert f"revision {REVISION}" in page
    assert "computed as int8 weights, int8 products on" in page


def test_every_file_stands_there_with_its_sum(page: str, cache: Path) -> None:
    snapshot = cache / f"models--{HUB.replace('/', '--')}" / "snapshots" / REVISION
    files = list(snapshot.iterdir())
    assert len(files) > 6
    for file in files:
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        assert f"| {file.name} | {len(content):,} | {digest} |" in page
    assert "None of the code was run." in page


def test_mask_ends_and_template_are_read(page: str) -> None:
    assert "- mask: `<|mask|>` (2)" in page
    assert "- an answer ends with: `<|im_end|>` (1)" in page
    assert "    <|im_start|>user\n    Why is the sky blue?<|im_end|>\n" in page


def test_the_law_is_held_and_speed_is_compared(page: str) -> None:
    for way in ("MARS τ=0.95 B=4", "lossless τ=0 B=4", "lossless τ=0 B=4 groups"):
        assert len(re.findall(rf"^\| {re.escape(way)} \|", page, re.MULTILINE)) == 2
    assert "Lossless answers that are not AR's: none." in page
    llama_cpp = r"^\| llama\.cpp \| 1\.00 \| 2\.0 \| 0\.\d\d \[.+\] \| 1\.00 \[1\.00, 1\.00\] \|"
    assert re.search(llama_cpp, page, re.MULTILINE)
    assert re.search(r"the same likeliest token at (100|9\d\.\d) % of them", page)


def test_a_broken_law_is_told_by_the_page_and_by_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = iter([Mismatch(0, 2, 7, 8)])
    monkeypatch.setattr(
        published.laws, "first_difference", lambda number, expected, found: next(first, None)
    )
    monkeypatch.setattr(published, "ways", lambda *given: dict([list(ways(*given).items())[1]]))
    out = tmp_path / "p.md"
    assert cli.run(asked(out)) == 1
    text = out.read_text(encoding="utf-8")
    assert "Lossless answers that are not AR's: 1." in text
    assert "llama.cpp |" in text
    assert "| – |" in text


ways = published.ways


def test_nothing_that_a_model_writes_is_markdown() -> None:
    written = "# A title\n\n<script>x</script>\n```\n| a | b |"
    assert published.quoted(written).splitlines() == [
        *("    # A title", "    ", "    <script>x</script>", "    ```", "    | a | b |")
    ]
    assert published.quoted("") == "    "


def test_a_file_of_an_odd_name_does_not_break_the_table(tmp_path: Path) -> None:
    (tmp_path / "a|b`<i>.json").write_text("{}")
    (line,) = published._files(tmp_path).splitlines()[2:]
    assert line.startswith("| a?b??i?.json | 2 | ")


def test_llama_cpp_is_asked_for_a_page_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers(dest="command"))
    assert cli.run(parser.parse_args(["verify", "lossless", "--llama-cpp", "PYTHON"])) == 2
    assert "is for verify published" in capsys.readouterr().err


def test_what_the_hub_does_not_give_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(asked(tmp_path / "p.md", name="mars-0.5b-blk8")) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert "could not be fetched from the hub" in sentence
    assert not (tmp_path / "p.md").exists()


@pytest.mark.slow
def test_a_page_on_one_of_full_size(tmp_path: Path) -> None:
    """Random weights: what it answers means nothing, that it comes to an end does."""
    folder = write_published(tmp_path / "full", is_full_size=True)
    out = tmp_path / "p.md"
    assert cli.run(asked(out, name=str(folder))) == 0
    assert json.loads((folder / "config.json").read_text())["num_hidden_layers"] == 24
    assert "24 layers, width 896, 151,936 rows, tied head, B = 4" in out.read_text("utf-8")


@pytest.mark.parametrize(
    ("seconds", "cell"), [(2.5, "1.60 [1.60, 1.60]"), (2.0, "2.00 [2.00, 2.00]"), (1.5, "busy")]
)
def test_no_speedup_over_ar_above_the_passes_saved(seconds: float, cell: str) -> None:
    """Four tokens in two forwards after the first, against four in four that take 4 s."""

    def sample(name: str, per_forward: int, took: float) -> Sample:
        num = 4 // per_forward
        tokens = (7,) * (per_forward * (num + 1))
        chunks = [Chunk(1.0 + took * place / num, per_forward) for place in range(num + 1)]
        row = TimedRow(tokens, tuple(chunks))
        return Sample(name, 1, "requests", 0, 0, TimedAnswer((row,), 1.0 + took, num + 1))

    samples = [sample(plan.AR, 1, 4.0), sample("MARS", 2, seconds)]
    assert published.over_ar(samples, "MARS") == cell
