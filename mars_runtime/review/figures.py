"""What judgements say together: preferences with intervals, ratings, tags, agreement of reviewers.

Intervals are bootstrapped by prompt (``statistics.py``), for judgements of one prompt are not
independent. What was said beside what machines marked is kept apart: no figure mixes them.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import fmean, median
from typing import Any

from mars_runtime.review import budget
from mars_runtime.review.answers import Difference, Marks, first_difference, marks
from mars_runtime.review.judgements import Judgement
from mars_runtime.review.sets import ReviewSet
from mars_runtime.statistics import Estimate, ratio_of_sums, ratios_of_sums

FEW, ENOUGH = 10, 50
EQUAL = "equal"
MAX_SHOWN_TAGS = 20
"""Tags of one way that get a figure: those that reviewers used most often."""
Distance = Callable[[Any, Any], float]


@dataclass(frozen=True, slots=True)
class Preferred:
    """Preferences between a way and the reference, over prompts whose two answers differ.

    Shares of the judgements, bootstrapped by prompt: for the way, for neither, for the reference.
    num_identical: prompts whose two answers are the same text. They are a tie without any
    judgement, so no share counts them.
    """

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
    """The preferences for each way that was judged, in one category or all."""
    return _preferences(review, rows).get(category, [])


def _preferences(review: ReviewSet, rows: Iterable[Judgement]) -> dict[str | None, list[Preferred]]:
    """Category -> the preferences for each way; None -> those over all categories."""
    about = review.about
    reference = about.ways[about.reference].name
    votes: dict[str, dict[str, list[str]]] = {about.ways[way].name: {} for way in about.others}
    for row in rows:
        budget.check()
        other = row.right if row.left == reference else row.left
        if reference in (row.left, row.right) and row.preference and other in votes:
            votes[other].setdefault(row.item, []).append(row.preferred)
    found: dict[str | None, list[Preferred]] = {}
    for number in about.others:
        way = about.ways[number].name
        groups: dict[str | None, list[list[str]]] = {}
        num_identical: Counter[str | None] = Counter()
        for index, item in enumerate(review.items):
            own = votes[way].get(item.id)
            for category in dict.fromkeys((None, item.category)):
                if is_identical(review, index, number):
                    num_identical[category] += 1
                elif own:
                    groups.setdefault(category, []).append(own)
        for category, judged in groups.items():
            budget.check()
            sizes = [len(own) for own in judged]
            counts = [[own.count(one) for own in judged] for one in (way, EQUAL, reference)]
            shares = ratios_of_sums(counts, sizes)
            found.setdefault(category, []).append(
                Preferred(way, len(judged), sum(sizes), num_identical[category], *shares)
            )
    return found


def is_identical(review: ReviewSet, item: int, way: int) -> bool:
    """Whether an answer is the reference's to the letter."""
    one, other = review.answer(item, way), review.answer(item, review.about.reference)
    return one is not None and other is not None and one.text == other.text


@dataclass(frozen=True, slots=True)
class Said:
    """What was said of a way by itself: mean rating, and tag -> share of judgements that have it,
    for the tags that are used most. Estimates by prompt; None without ratings."""

    way: str
    num_judgements: int
    rating: Estimate | None
    tags: Mapping[str, Estimate]


def said(review: ReviewSet, rows: Iterable[Judgement]) -> list[Said]:
    """One for each way that was judged."""
    by_way: dict[str, dict[str, list[tuple[int, tuple[str, ...]]]]] = defaultdict(dict)
    for row in rows:
        budget.check()
        for way in (row.left, row.right):
            by_way[way].setdefault(row.item, []).append(row.of(way))
    return [_said(way.name, by_way[way.name]) for way in review.about.ways if way.name in by_way]


def _said(way: str, by_item: Mapping[str, Sequence[tuple[int, tuple[str, ...]]]]) -> Said:
    rated = [[rating for rating, _ in own if rating] for own in by_item.values()]
    rated = [own for own in rated if own]
    rating = None
    if rated:
        rating = ratio_of_sums([sum(own) for own in rated], [len(own) for own in rated])
    used = [Counter(tag for _, tags in own for tag in tags) for own in by_item.values()]
    total: Counter[str] = Counter()
    for each in used:
        total.update(each)
    names = [name for name, _ in total.most_common(MAX_SHOWN_TAGS)]
    sizes = [len(own) for own in by_item.values()]
    budget.check()
    shares = ratios_of_sums([[each[name] for each in used] for name in names], sizes)
    return Said(way, sum(sizes), rating, dict(zip(names, shares, strict=True)))


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
    weights: dict[tuple[Any, Any], float] = defaultdict(float)
    for unit in units:
        budget.check()
        counts = Counter(unit)
        for one, other in product(counts, repeat=2):
            pairs = counts[one] * (counts[other] - (one == other))
            if pairs:
                weights[one, other] += pairs / (len(unit) - 1)
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
class ReviewerAgreement:
    """Of the reviewers: of how many pairs several judged, and alpha of preference and of rating."""

    num_reviewers: int
    num_shared: int
    preference: float | None
    rating: float | None


def agreement(rows: Iterable[Judgement]) -> ReviewerAgreement:
    """Of what people judged; answers that are equal to the letter nobody was asked about."""
    kept = list(rows)
    preferred: dict[Hashable, list[str]] = defaultdict(list)
    rated: dict[Hashable, list[int]] = defaultdict(list)
    for row in kept:
        budget.check()
        unit = row.unit[1:]
        if row.preference:
            preferred[unit].append(row.preferred)
        for way in (row.left, row.right):
            if rating := row.of(way)[0]:
                rated[unit, way].append(rating)
    return ReviewerAgreement(
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


def _marks_by_category(review: ReviewSet, way: int) -> Mapping[str, list[Marks]]:
    """Category -> the marks of its answers; "" -> those of all."""
    found: dict[str, list[Marks]] = defaultdict(list)
    for index, item in enumerate(review.items):
        answer, reference = review.answer(index, way), review.answer(index, review.about.reference)
        if answer and reference:
            made = marks(answer, reference)
            for category in dict.fromkeys(("", item.category)):
                found[category].append(made)
    return found


def _summed(review: ReviewSet, way: int, category: str, found: Sequence[Marks]) -> Marked:
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
    categories = _categories(review)
    found = [_marks_by_category(review, way) for way in range(len(about.ways))]
    examples = [_first_examples(review, way) for way in about.others]
    return {
        "name": about.name,
        "reference": about.ways[about.reference].name,
        "made": dict(about.made),
        "marks": [
            asdict(_summed(review, way, category, found[way].get(category, [])))
            for category in ("", *categories)
            for way in range(len(about.ways))
        ],
        "examples": [
            asdict(own[category]) for own in examples for category in categories if category in own
        ],
    }


def _categories(review: ReviewSet) -> list[str]:
    return list(dict.fromkeys(item.category for item in review.items if item.category))


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first prompt of a category at which a way parts from the reference, and how."""

    way: str
    category: str
    item: str
    prompt: str
    difference: Difference


def _first_examples(review: ReviewSet, way: int) -> dict[str, FirstDifference]:
    """The first example of each category in which the way and the reference differ."""
    name = review.about.ways[way].name
    examples: dict[str, FirstDifference] = {}
    for index, item in enumerate(review.items):
        answer, reference = review.answer(index, way), review.answer(index, review.about.reference)
        if item.category not in examples and answer and reference:
            found = first_difference(reference.text, answer.text)
            if found is not None:
                examples[item.category] = FirstDifference(
                    name, item.category, item.id, item.prompt, found
                )
    return examples


def figures(review: ReviewSet, rows: Iterable[Judgement]) -> dict[str, Any]:
    """All figures as JSON values, for pages and files."""
    kept = list(rows)
    preferred = _preferences(review, kept)
    return {
        "preferences": [asdict(each) for each in preferred.get(None, [])],
        "by_category": {
            name: [asdict(each) for each in preferred.get(name, [])] for name in _categories(review)
        },
        "said": [asdict(each) for each in said(review, kept)],
        "agreement": asdict(agreement(kept)),
        "caution": caution(len({row.item for row in kept if row.preference})),
    }
