"""What judgements say together: preferences with intervals, ratings, tags, agreement of reviewers.

Intervals are bootstrapped by prompt (``statistics.py``), for judgements of one prompt are not
independent. What was said beside what machines marked is kept apart: no figure mixes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from statistics import fmean, median
from typing import Any

from mars_runtime.review.answers import Difference, first_difference, marks
from mars_runtime.review.judgements import Judgement
from mars_runtime.review.sets import ReviewSet
from mars_runtime.statistics import Estimate, ratio_of_sums

FEW, ENOUGH = 10, 50
EQUAL = "equal"
Distance = Callable[[Any, Any], float]


@dataclass(frozen=True, slots=True)
class Preferred:
    """How a way does beside the reference. Shares of judgements, by prompt: for the way, for
    neither, for the reference. num_identical: of the judgements, those of answers that are equal to
    the letter, which count as equal unasked, once for each who judged the pair."""

    way: str
    num_prompts: int
    num_judgements: int
    num_identical: int
    better: Estimate
    equal: Estimate
    worse: Estimate


def preferences(
    review: ReviewSet, rows: Iterable[Judgement], category: str | None = None
) -> list[Preferred]:
    """One for each way that was held against the reference, of one category or all."""
    found = []
    about = review.about
    reference = about.ways[about.reference].name
    kept = list(rows)
    for number in about.others:
        way = about.ways[number].name
        judged: dict[str, list[str]] = defaultdict(list)
        for row in kept:
            if {row.left, row.right} == {way, reference} and row.preference:
                judged[row.item].append(row.preferred)
        reviewers = {row.reviewer for row in kept if {row.left, row.right} == {way, reference}}
        num_identical = 0
        for index, item in enumerate(review.items):
            if item.id not in judged and is_identical(review, index, number):
                judged[item.id] = [EQUAL] * len(reviewers)
                num_identical += len(reviewers)
        wanted = {item.id for item in review.items if category in (None, item.category)}
        votes = [own for item, own in judged.items() if own and item in wanted]
        if votes:
            sizes = [len(own) for own in votes]
            shares = [
                ratio_of_sums([own.count(one) for own in votes], sizes)
                for one in (way, EQUAL, reference)
            ]
            found.append(Preferred(way, len(votes), sum(sizes), num_identical, *shares))
    return found


def is_identical(review: ReviewSet, item: int, way: int) -> bool:
    """Whether an answer is the reference's to the letter."""
    one, other = review.answer(item, way), review.answer(item, review.about.reference)
    return one is not None and other is not None and one.text == other.text


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of a way by itself: mean rating, and tag -> share of judgements that have it.
    Estimates by prompt; None where nobody rated."""

    way: str
    num_judgements: int
    rating: Estimate | None
    tags: Mapping[str, Estimate]


def said(review: ReviewSet, rows: Iterable[Judgement]) -> list[Said]:
    """One for each way that was judged."""
    found = []
    kept = list(rows)
    for way in (each.name for each in review.about.ways):
        by_item: dict[str, list[tuple[int, tuple[str, ...]]]] = defaultdict(list)
        for row in kept:
            if way in (row.left, row.right):
                by_item[row.item].append(row.of(way))
        if not by_item:
            continue
        rated = [[rating for rating, _ in own if rating] for own in by_item.values()]
        rated = [own for own in rated if own]
        names = Counter(tag for own in by_item.values() for _, tags in own for tag in tags)
        sizes = [len(own) for own in by_item.values()]
        tags = {
            name: ratio_of_sums(
                [sum(name in tags for _, tags in own) for own in by_item.values()], sizes
            )
            for name, _ in names.most_common()
        }
        rating = (
            ratio_of_sums([sum(own) for own in rated], [len(own) for own in rated])
            if rated
            else None
        )
        found.append(Said(way, sum(sizes), rating, tags))
    return found


def nominal(one: Hashable, other: Hashable) -> float:
    """Krippendorff's difference of names."""
    return float(one != other)


def interval(one: float, other: float) -> float:
    """Krippendorff's difference of numbers."""
    return float(one - other) ** 2


def alpha(units: Iterable[Sequence[Any]], distance: Distance = nominal) -> float | None:
    """Krippendorff's alpha: 1 minus observed over expected disagreement, from a matrix of
    coincidences; units hold the values that reviewers gave, those with one value pair nothing.

    None where nobody could have disagreed. Source: Krippendorff, Computing Krippendorff's
    Alpha-Reliability (2011), section C.
    """
    coincidences: Counter[tuple[Any, Any]] = Counter()
    weights: dict[tuple[Any, Any], float] = defaultdict(float)
    for unit in units:
        coincidences.clear()
        coincidences.update(permutations(unit, 2))
        for pair, count in coincidences.items():
            weights[pair] += count / (len(unit) - 1)
    totals: dict[Any, float] = defaultdict(float)
    for (one, _), weight in weights.items():
        totals[one] += weight
    whole = sum(totals.values())
    expected = sum(
        totals[one] * totals[other] * distance(one, other) for one in totals for other in totals
    )
    if not expected:
        return None
    observed = sum(weight * distance(*pair) for pair, weight in weights.items())
    return 1.0 - (whole - 1) * observed / expected


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of the reviewers: of how many pairs several judged, and alpha of preference and of rating."""

    num_reviewers: int
    num_shared: int
    preference: float | None
    rating: float | None


def agreement(rows: Iterable[Judgement]) -> Agreement:
    """Of what people judged; answers that are equal to the letter nobody was asked about."""
    kept = list(rows)
    preferred: dict[Hashable, list[str]] = defaultdict(list)
    rated: dict[Hashable, list[int]] = defaultdict(list)
    for row in kept:
        unit = row.unit[1:]
        if row.preference:
            preferred[unit].append(row.preferred)
        for way in (row.left, row.right):
            if rating := row.of(way)[0]:
                rated[unit, way].append(rating)
    return Agreement(
        len({row.reviewer for row in kept}),
        sum(len(own) > 1 for own in preferred.values()),
        alpha(own for own in preferred.values() if len(own) > 1),
        alpha((own for own in rated.values() if len(own) > 1), interval),
    )


def caution(num_prompts: int) -> str:
    """What so many judged prompts allow to say."""
    if not num_prompts:
        return "Nobody has judged anything yet."
    if num_prompts < FEW:
        return f"{_counted(num_prompts)}: far too few to say which way is better."
    if num_prompts < ENOUGH:
        return (
            f"{_counted(num_prompts)}: only large differences show; an interval that spans half "
            "allows no conclusion."
        )
    return (
        f"{_counted(num_prompts)}: where the intervals of two shares don't overlap, they differ "
        "on prompts like these."
    )


def _counted(num_prompts: int) -> str:
    return f"{num_prompts} judged {'prompt' if num_prompts == 1 else 'prompts'}"


@dataclass(frozen=True, slots=True)
class Marked:
    """What automatic marks say of the answers of one way, all of them or of one category. tpf: of
    each answer by itself, then their mean. num_same: to the letter the reference's; first_word:
    median of where the others first differ, counted from 1. num_right of num_checked."""

    way: str
    category: str
    num_answers: int
    tpf: float | None
    num_same: int
    first_word: float | None
    num_looped: int
    num_right: int
    num_checked: int


def marked(review: ReviewSet, way: int, category: str = "") -> Marked:
    """The marks of a way; of every category where none is named."""
    found = []
    for index, item in enumerate(review.items):
        answer, reference = review.answer(index, way), review.answer(index, review.about.reference)
        if answer and reference and category in ("", item.category):
            found.append(marks(answer, reference))
    tpf = [each.tpf for each in found if each.tpf is not None]
    words = [each.difference.word + 1 for each in found if each.difference]
    checked = [each.is_right for each in found if each.is_right is not None]
    return Marked(
        way=review.about.ways[way].name,
        category=category,
        num_answers=len(found),
        tpf=fmean(tpf) if tpf else None,
        num_same=sum(each.is_same for each in found),
        first_word=median(words) if words else None,
        num_looped=sum(each.is_looped for each in found),
        num_right=sum(checked),
        num_checked=len(checked),
    )


def study(review: ReviewSet) -> dict[str, Any]:
    """The marks of all ways, by category too, with where they come from, as JSON values."""
    about = review.about
    categories = dict.fromkeys(item.category for item in review.items if item.category)
    return {
        "name": about.name,
        "reference": about.ways[about.reference].name,
        "made": dict(about.made),
        "marks": [
            asdict(marked(review, way, category))
            for category in ("", *categories)
            for way in range(len(about.ways))
        ],
        "examples": [
            asdict(found)
            for way in about.others
            for category in categories
            if (found := first_example(review, way, category)) is not None
        ],
    }


@dataclass(frozen=True, slots=True)
class Example:
    """The first prompt of a category at which a way parts from the reference, and how."""

    way: str
    category: str
    item: str
    prompt: str
    difference: Difference


def first_example(review: ReviewSet, way: int, category: str) -> Example | None:
    """None where the way says what the reference says to all of them."""
    name = review.about.ways[way].name
    for index, item in enumerate(review.items):
        answer, reference = review.answer(index, way), review.answer(index, review.about.reference)
        if item.category == category and answer and reference:
            found = first_difference(reference.text, answer.text)
            if found is not None:
                return Example(name, category, item.id, item.prompt, found)
    return None


def figures(review: ReviewSet, rows: Iterable[Judgement]) -> dict[str, Any]:
    """All figures as JSON values, for pages and files."""
    kept = list(rows)
    ways = preferences(review, kept)
    categories = dict.fromkeys(item.category for item in review.items if item.category)
    return {
        "preferences": [asdict(each) for each in ways],
        "by_category": {
            name: [asdict(each) for each in preferences(review, kept, name)] for name in categories
        },
        "said": [asdict(each) for each in said(review, kept)],
        "agreement": asdict(agreement(kept)),
        "caution": caution(len({row.item for row in kept if row.preference})),
    }
