"""Sets as files: made in an engine, killed and resumed, packed, damaged."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mars_runtime import folds, tasks
from mars_runtime.__main__ import main
from mars_runtime.engine import Engine
from mars_runtime.engine.backend import CheckpointBackend
from mars_runtime.engine.header import facts_of
from mars_runtime.model.load import Checkpoint
from mars_runtime.review.answers import Answer, answer_of, first_difference, marks
from mars_runtime.review.making import Decoder, make
from mars_runtime.review.methods import read_methods
from mars_runtime.review.prompts import Item, as_jsonl, read_prompts
from mars_runtime.review.sets import ReviewSet, SetDescription, SetError, unpack
from mars_runtime.tasks import Task
from tests.review.made_sets import TIMES, killed_at, timeless, words

ROOT = Path(__file__).parents[2]
UPPER = tasks.generate("formats", "eval", 0, 2)[1]
ITEMS = [
    Item("1", "one two"),
    Item("2", "three", system="Be short."),
    Item("3", "and?", turns=(("user", "four"), ("assistant", "five"))),
]


def about(*ways: str, made: dict[str, Any] | None = None) -> SetDescription:
    return SetDescription("a set", read_methods(ways, "tiny", max_new_tokens=12), 0, made or {})


@pytest.fixture
def decoder(foreseeing: Checkpoint) -> Iterator[Decoder]:
    with Engine(CheckpointBackend(foreseeing, keeps=False)) as engine:
        yield Decoder(engine, foreseeing.tokenizer, facts_of(foreseeing))


def test_every_answer_is_there_and_says_what_its_trace_says(
    decoder: Decoder, tmp_path: Path
) -> None:
    review = ReviewSet.create(tmp_path, about("ar", "tau=0,B=8", "lossless,B=8"), ITEMS)
    progress = list(make(review, lambda name: decoder))
    assert (progress[0].num_done, progress[-1].num_done, progress[-1].num_all) == (0, 9, 9)
    opened = ReviewSet.open(tmp_path)
    assert opened.missing() == []
    for item in range(3):
        ar, bold, lossless = (opened.answer(item, way) for way in range(3))
        assert ar
        assert bold
        assert lossless
        assert lossless.text == ar.text
        assert sum(bold.groups) == bold.num_tokens
        trace = opened.trace(item, 1)
        assert folds.text(trace) == bold.text == "".join(bold.pieces)
        assert bold.tpf == pytest.approx(folds.tpf(trace.events))
        assert answer_of(trace, ITEMS[item]) == bold
        tokens, otherwise = folds.accepted_tokens(trace.events), {}  # where AR disagrees
        for step, _ in folds.row_steps(trace.events):
            for back, (token, _) in enumerate(reversed(step.checks), 1):
                if tokens[step.start - back] != token:
                    word = trace.vocabulary[token].decode("utf-8", "replace")
                    otherwise[step.start - back] = word
        assert bold.otherwise == otherwise
    ids = opened.trace(1, 0).header.prompt_ids
    assert list(ids) == decoder.tokenizer.encode_chat([("system", "Be short."), ("user", "three")])


def test_a_set_is_resumed_only_by_the_same(tmp_path: Path) -> None:
    made = {"weights": {"tiny": "abc"}}
    ReviewSet.create(tmp_path, about("ar", "tau=0", made=made), ITEMS)
    ReviewSet.create(tmp_path, about("ar", "tau=0", made=made), ITEMS)
    for other, items in (
        (about("ar", "tau=0.5", made=made), ITEMS),
        (about("ar", "tau=0"), ITEMS[:1]),
    ):
        with pytest.raises(SetError, match="other prompts or methods"):
            ReviewSet.create(tmp_path, other, items)
    with pytest.raises(SetError, match="other weights"):
        ReviewSet.create(tmp_path, about("ar", "tau=0"), ITEMS)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("../outside", tarfile.REGTYPE),
        ("/tmp/outside", tarfile.REGTYPE),
        ("answers/link", tarfile.SYMTYPE),
        ("answers/0001-0.jsonl", tarfile.LNKTYPE),
        ("set.json", tarfile.FIFOTYPE),
        ("more.jsonl", tarfile.REGTYPE),
    ],
)
def test_an_archive_of_other_things_than_files_leaves_nothing(
    tmp_path: Path, name: str, kind: bytes
) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname = kind, "/etc/passwd"
    archive = tmp_path / "a.tar.xz"
    with tarfile.open(archive, "w:xz") as file:
        file.addfile(entry, io.BytesIO(b""))
    folder = tmp_path / "in" / "here"
    folder.mkdir(parents=True)
    with pytest.raises(ValueError, match="entries that are not files of a set"):
        unpack(archive, folder)
    assert sorted(tmp_path.rglob("*")) == [archive, tmp_path / "in", folder]


def test_packed_it_is_the_same_set(
    decoder: Decoder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARS_CACHE", str(tmp_path / "cache"))
    review = ReviewSet.create(tmp_path / "set", about("ar", "tau=0,B=8"), ITEMS)
    list(make(review, lambda name: decoder))
    for name in ("a.tar.xz", "b.tar.xz"):
        review.pack(tmp_path / name)
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()
    packed = ReviewSet.open(tmp_path / "a.tar.xz")
    assert packed.items == review.items
    assert packed.about == review.about
    assert packed.missing() == []
    for pair in review.pairs():
        assert packed.answer(*pair) == review.answer(*pair)
        ours, theirs = ("".join(item.lines(*pair)) for item in (packed, review))
        assert TIMES.sub("", ours) == TIMES.sub("", theirs)
    (tmp_path / "b.tar.xz").write_bytes((tmp_path / "a.tar.xz").read_bytes()[:-100])
    with pytest.raises(SetError, match="is not a set"):
        ReviewSet.open(tmp_path / "b.tar.xz")


def test_text_alone_is_an_answer_and_is_judged(tmp_path: Path) -> None:
    review = ReviewSet.create(tmp_path, about("ar", "tau=0"), [Item("1", UPPER.prompt, task=UPPER)])
    review.add_text(0, 0, UPPER.answer)
    review.add_text(0, 1, "owl\r\n")
    first, second = review.answer(0, 0), review.answer(0, 1)
    assert first
    assert second
    assert (first.is_right, second.is_right, second.text) == (True, False, "owl\r\n")
    assert review.lines(0, 0) == []
    actual = marks(second, first)
    assert (actual.is_same, actual.tpf) == (False, None)
    assert actual.difference is not None
    assert (actual.difference.word, actual.difference.own) == (0, "owl")


def test_a_first_difference_is_by_words() -> None:
    assert first_difference("a b  c", "a b c") is None
    actual = first_difference("a b c d e", "a b c")
    assert actual is not None
    assert (actual.word, actual.reference, actual.own) == (3, "a b c d e", "a b c")
    assert marks(Answer("a  b"), Answer("a b")).is_same is False


@pytest.mark.parametrize("name", ["set.json", "prompts.jsonl"])
def test_a_damaged_set_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    ReviewSet.create(tmp_path, about("ar", "tau=0"), ITEMS)
    for damage in ("", "{", "[]", '{"version": 2}', "\x00"):
        (tmp_path / name).write_text(damage, encoding="utf-8")
        with pytest.raises(SetError, match=r"is not a set|Line"):
            ReviewSet.open(tmp_path)


def test_a_damaged_summary_or_answer_costs_no_more_than_itself(
    decoder: Decoder, tmp_path: Path
) -> None:
    review = ReviewSet.create(tmp_path, about("ar", "tau=0"), ITEMS[:1])
    list(make(review, lambda name: decoder))
    expected = review.answer(0, 0)
    (tmp_path / "summary.jsonl").write_text('{"item": 0}\n[]\n{', encoding="utf-8")
    assert ReviewSet.open(tmp_path).answer(0, 0) == expected
    (tmp_path / "summary.jsonl").unlink()
    (tmp_path / "answers/0001-0.jsonl").write_text("{}\n", encoding="utf-8")
    with pytest.raises(SetError, match="damaged"):
        ReviewSet.open(tmp_path).answer(0, 0)


@pytest.mark.parametrize("expected", ["[" * 100_000, "3", "null"])
def test_a_task_with_an_odd_answer_is_judged_wrong(tmp_path: Path, expected: str) -> None:
    items = [
        Item(family, "Say yes.", task=Task(family, "x", "Say yes.", "", expected))
        for family in (*tasks.FAMILIES, *tasks.SHIFTED)
    ]
    review = ReviewSet.create(
        tmp_path / "set", about("ar", "tau=0"), read_prompts(as_jsonl(items), "json").items
    )
    for number in range(len(items)):
        review.add_text(number, 0, "yes")
        actual = review.answer(number, 0)
        assert actual is not None
        assert actual.is_right is False


def test_a_killed_command_leaves_what_it_leaves_unkilled(tmp_path: Path) -> None:
    killed, whole, file = tmp_path / "killed", tmp_path / "whole", tmp_path / "eight.jsonl"
    tasks_made = tasks.generate("word_problems", "eval", 0, 8)
    file.write_text(as_jsonl([Item(f"{n}", t.prompt, task=t) for n, t in enumerate(tasks_made)]))
    assert 5 <= killed_at(5, words(str(file), killed), killed) < 24, "it was to be killed midway"
    for out in (killed, whole):
        assert main(words(str(file), out)) == 0
    assert timeless(killed) == timeless(whole)


def test_the_bundled_study_opens_and_is_small() -> None:
    path = ROOT / "assets/review/study.tar.xz"
    assert path.stat().st_size < 4_000_000
    study = ReviewSet.open(path)
    assert (len(study.items), len(study.about.methods), study.missing()) == (100, 5, [])
    assert sum(item.task is not None for item in study.items) == 20
    for item in range(0, 100, 33):
        answer = study.answer(item, 3)
        assert answer_of(study.trace(item, 3), study.items[item]) == answer


def test_an_answer_with_half_of_a_character_is_damaged(tmp_path: Path) -> None:
    review = ReviewSet.create(tmp_path, about("ar", "tau=0"), ITEMS[:1])
    review.add_text(0, 0, "whole")
    (tmp_path / "answers/0001-0.json").write_text('{"text": "\\ud800"}', encoding="utf-8")
    with pytest.raises(SetError, match="damaged"):
        review.answer(0, 0)
