"""Statistics of judgements: preferences with intervals, ratings, tags, and agreement between
reviewers.

Intervals are bootstrapped by prompt (``statistics.py``), because judgements of one prompt are not
independent. No figure mixes people's judgements with automatic checks.
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
"""Most tags of one method that get a figure: the ones used most often."""
Distance = Callable[[Any, Any], float]


@dataclass(frozen=True, slots=True)
class Preferred:
    """Preferences between a method and the reference, over prompts with two different answers.

    Shares of the judgements, bootstrapped by prompt: for the method, for neither, for the
    reference. num_identical: prompts whose two answers are the same text. These are ties without a
    judgement and count in no share.
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
    """Return the preferences for each judged method, in one category or in all."""
    return _preferences(review, rows).get(category, [])


def _preferences(review: ReviewSet, rows: Iterable[Judgement]) -> dict[str | None, list[Preferred]]:
    """Return the preferences for each method by category; the key None holds those over all
    categories.
    """
    about = review.about
    reference = about.methods[about.reference].name
    votes: dict[str, dict[str, list[str]]] = {
        about.methods[method].name: {} for method in about.others
    }
    for row in rows:
        budget.check()
        other = row.right if row.left == reference else row.left
        if reference in (row.left, row.right) and row.preference and other in votes:
            votes[other].setdefault(row.item, []).append(row.preferred)
    by_category: dict[str | None, list[Preferred]] = {}
    for number in about.others:
        method = about.methods[number].name
        groups: dict[str | None, list[list[str]]] = {}
        num_identical: Counter[str | None] = Counter()
        for index, item in enumerate(review.items):
            item_votes = votes[method].get(item.id)
            for category in dict.fromkeys((None, item.category)):
                if is_identical(review, index, number):
                    num_identical[category] += 1
                elif item_votes:
                    groups.setdefault(category, []).append(item_votes)
        for category, judged in groups.items():
            budget.check()
            sizes = [len(item_votes) for item_votes in judged]
            counts = [
                [item_votes.count(choice) for item_votes in judged]
                for choice in (method, EQUAL, reference)
            ]
            shares = ratios_of_sums(counts, sizes)
            by_category.setdefault(category, []).append(
                Preferred(method, len(judged), sum(sizes), num_identical[category], *shares)
            )
    return by_category


def is_identical(review: ReviewSet, item: int, method: int) -> bool:
    """Whether an answer equals the reference's exactly."""
    answer, other = review.answer(item, method), review.answer(item, review.about.reference)
    return answer is not None and other is not None and answer.text == other.text


@dataclass(frozen=True, slots=True)
class Said:
    """Ratings and tags of one method: the mean rating, and the share of judgements with each of the
    most used tags. Estimates are bootstrapped by prompt; None without ratings.
    """

    way: str
    num_judgements: int
    rating: Estimate | None
    tags: Mapping[str, Estimate]


def said(review: ReviewSet, rows: Iterable[Judgement]) -> list[Said]:
    """Return the ratings and tags of each judged method."""
    by_method: dict[str, dict[str, list[tuple[int, tuple[str, ...]]]]] = defaultdict(dict)
    for row in rows:
        budget.check()
        for method in (row.left, row.right):
            by_method[method].setdefault(row.item, []).append(row.of(method))
    return [
        _said(method.name, by_method[method.name])
        for method in review.about.methods
        if method.name in by_method
    ]


def _said(method: str, by_item: Mapping[str, Sequence[tuple[int, tuple[str, ...]]]]) -> Said:
    rated = [[rating for rating, _ in item_rows if rating] for item_rows in by_item.values()]
    rated = [item_ratings for item_ratings in rated if item_ratings]
    rating = None
    if rated:
        rating = ratio_of_sums(
            [sum(item_ratings) for item_ratings in rated],
            [len(item_ratings) for item_ratings in rated],
        )
    used = [Counter(tag for _, tags in item_rows for tag in tags) for item_rows in by_item.values()]
    total: Counter[str] = Counter()
    for counted in used:
        total.update(counted)
    names = [name for name, _ in total.most_common(MAX_SHOWN_TAGS)]
    sizes = [len(item_rows) for item_rows in by_item.values()]
    budget.check()
    shares = ratios_of_sums([[counts[name] for counts in used] for name in names], sizes)
    return Said(method, sum(sizes), rating, dict(zip(names, shares, strict=True)))


def nominal(one: Hashable, other: Hashable) -> float:
    """Return Krippendorff's difference of names: 0 if equal, 1 otherwise."""
    return float(one != other)


def interval(one: float, other: float) -> float:
    """Return Krippendorff's difference of numbers: the squared difference."""
    return float(one - other) ** 2


def alpha(units: Iterable[Sequence[Any]], distance: Distance = nominal) -> float | None:
    """Return Krippendorff's alpha: 1 minus observed over expected disagreement, from a coincidence
    matrix.

    units: the values that reviewers gave to each unit; a unit with one value is skipped. Returns
    None if disagreement is impossible. Source: Krippendorff, Computing Krippendorff's
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
    """Agreement between reviewers: the number of pairs that several judged, and alpha of preference
    and of rating.
    """

    num_reviewers: int
    num_shared: int
    preference: float | None
    rating: float | None


def agreement(rows: Iterable[Judgement]) -> ReviewerAgreement:
    """Return the agreement between reviewers. Pairs with equal answers are never shown, so they do
    not count.
    """
    judged = list(rows)
    preferred: dict[Hashable, list[str]] = defaultdict(list)
    rated: dict[Hashable, list[int]] = defaultdict(list)
    for row in judged:
        budget.check()
        unit = row.unit[1:]
        if row.preference:
            preferred[unit].append(row.preferred)
        for method in (row.left, row.right):
            if rating := row.of(method)[0]:
                rated[unit, method].append(rating)
    return ReviewerAgreement(
        len({row.reviewer for row in judged}),
        sum(len(unit_votes) > 1 for unit_votes in preferred.values()),
        alpha(unit_votes for unit_votes in preferred.values() if len(unit_votes) > 1),
        alpha((unit_ratings for unit_ratings in rated.values() if len(unit_ratings) > 1), interval),
    )


def caution(num_prompts: int) -> str:
    """Return one sentence about what this many judged prompts allow to conclude."""
    if not num_prompts:
        return "No judgements yet."
    if num_prompts < FEW:
        return f"{_counted(num_prompts)}: far too few to say which method is better."
    if num_prompts < ENOUGH:
        return (
            f"{_counted(num_prompts)}: only large differences show. An interval that contains 50 "
            "% allows no conclusion."
        )
    return (
        f"{_counted(num_prompts)}: two shares whose intervals do not overlap differ on prompts "
        "like these."
    )


def _counted(num_prompts: int) -> str:
    return f"{num_prompts} judged {'prompt' if num_prompts == 1 else 'prompts'}"


@dataclass(frozen=True, slots=True)
class Marked:
    """Automatic checks of one method's answers, over all of them or in one category.

    tpf: mean over the answers. num_same: answers equal to the reference. first_word: median first
    difference of the other answers, counted from 1. num_right of num_checked: verdicts of the
    checkers.
    """

    way: str
    category: str
    num_answers: int
    tpf: float | None
    num_same: int
    first_word: float | None
    num_looped: int
    num_right: int
    num_checked: int


def _marks_by_category(review: ReviewSet, method: int) -> Mapping[str, list[Marks]]:
    """Return the automatic checks of a method by category; the key "" holds those of all
    answers.
    """
    by_category: dict[str, list[Marks]] = defaultdict(list)
    for index, item in enumerate(review.items):
        answer, reference = (
            review.answer(index, method),
            review.answer(index, review.about.reference),
        )
        if answer and reference:
            made = marks(answer, reference)
            for category in dict.fromkeys(("", item.category)):
                by_category[category].append(made)
    return by_category


def _summed(review: ReviewSet, method: int, category: str, checks: Sequence[Marks]) -> Marked:
    tpf = [mark.tpf for mark in checks if mark.tpf is not None]
    words = [mark.difference.word + 1 for mark in checks if mark.difference]
    checked = [mark.is_right for mark in checks if mark.is_right is not None]
    return Marked(
        way=review.about.methods[method].name,
        category=category,
        num_answers=len(checks),
        tpf=fmean(tpf) if tpf else None,
        num_same=sum(mark.is_same for mark in checks),
        first_word=median(words) if words else None,
        num_looped=sum(mark.is_looped for mark in checks),
        num_right=sum(checked),
        num_checked=len(checked),
    )


def study(review: ReviewSet) -> dict[str, Any]:
    """Return the automatic checks of all methods, in total and by category, with provenance, as
    JSON values.
    """
    about = review.about
    categories = _categories(review)
    by_method = [_marks_by_category(review, method) for method in range(len(about.methods))]
    examples = [_first_examples(review, method) for method in about.others]
    return {
        "name": about.name,
        "reference": about.methods[about.reference].name,
        "made": dict(about.made),
        "marks": [
            asdict(_summed(review, method, category, by_method[method].get(category, [])))
            for category in ("", *categories)
            for method in range(len(about.methods))
        ],
        "examples": [
            asdict(by_category[category])
            for by_category in examples
            for category in categories
            if category in by_category
        ],
    }


def _categories(review: ReviewSet) -> list[str]:
    return list(dict.fromkeys(item.category for item in review.items if item.category))


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """The first prompt of a category at which a method's answer differs from the reference's, and
    the difference.
    """

    way: str
    category: str
    item: str
    prompt: str
    difference: Difference


def _first_examples(review: ReviewSet, method: int) -> dict[str, FirstDifference]:
    """Return the first example of each category in which the method and the reference differ."""
    name = review.about.methods[method].name
    examples: dict[str, FirstDifference] = {}
    for index, item in enumerate(review.items):
        answer, reference = (
            review.answer(index, method),
            review.answer(index, review.about.reference),
        )
        if item.category not in examples and answer and reference:
            difference = first_difference(reference.text, answer.text)
            if difference is not None:
                examples[item.category] = FirstDifference(
                    name, item.category, item.id, item.prompt, difference
                )
    return examples


def figures(review: ReviewSet, rows: Iterable[Judgement]) -> dict[str, Any]:
    """Return all figures as JSON values, for pages and files."""
    judged = list(rows)
    preferred = _preferences(review, judged)
    return {
        "preferences": [asdict(preference) for preference in preferred.get(None, [])],
        "by_category": {
            name: [asdict(preference) for preference in preferred.get(name, [])]
            for name in _categories(review)
        },
        "said": [asdict(opinion) for opinion in said(review, judged)],
        "agreement": asdict(agreement(judged)),
        "caution": caution(len({row.item for row in judged if row.preference})),
    }
