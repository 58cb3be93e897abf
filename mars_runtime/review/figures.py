"""Statistics of a set: preferences, ratings, tags, agreement of reviewers, automatic checks.

Intervals are bootstrapped by prompt (``statistics.py``), because judgements of one prompt depend on
each other. No figure combines judgements with automatic checks. The dataclasses become JSON, in
which the key of a method's name is ``way``.
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
"""Maximum number of tags per method in ``Opinion``. The most frequent tags are shown."""
Distance = Callable[[Any, Any], float]


@dataclass(frozen=True, slots=True)
class Preferred:
    """Preferences between a method and the reference.

    way: name of the method. num_prompts: prompts with a judgement of this pair. better, equal,
    worse: shares of the judgements that prefer the method, neither, or the reference.
    num_identical: prompts to which both methods gave the same text; they are not judged and count
    in no share.
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
    """Return the preferences for each judged method. category: None for all prompts."""
    return _preferences(review, rows).get(category, [])


def _preferences(review: ReviewSet, rows: Iterable[Judgement]) -> dict[str | None, list[Preferred]]:
    """Return the preferences for each method, by category; None is the key for all prompts."""
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
    """Return whether a method and the reference gave the same text to a prompt."""
    answer, other = review.answer(item, method), review.answer(item, review.about.reference)
    return answer is not None and other is not None and answer.text == other.text


@dataclass(frozen=True, slots=True)
class Opinion:
    """Ratings and tags of one method.

    way: name of the method. rating: the mean rating; None without ratings. tags: share of the
    judgements with each of the most frequent tags.
    """

    way: str
    num_judgements: int
    rating: Estimate | None
    tags: Mapping[str, Estimate]


def opinions(review: ReviewSet, rows: Iterable[Judgement]) -> list[Opinion]:
    """Return the ratings and tags of each judged method."""
    by_method: dict[str, dict[str, list[tuple[int, tuple[str, ...]]]]] = defaultdict(dict)
    for row in rows:
        budget.check()
        for method in (row.left, row.right):
            by_method[method].setdefault(row.item, []).append(row.of(method))
    return [
        _opinion(method.name, by_method[method.name])
        for method in review.about.methods
        if method.name in by_method
    ]


def _opinion(method: str, by_item: Mapping[str, Sequence[tuple[int, tuple[str, ...]]]]) -> Opinion:
    rated = [[rating for rating, _ in item_rows if rating] for item_rows in by_item.values()]
    rated = [item_ratings for item_ratings in rated if item_ratings]
    rating = None
    if rated:
        rating = ratio_of_sums(
            [sum(item_ratings) for item_ratings in rated],
            [len(item_ratings) for item_ratings in rated],
        )
    tag_counts = [
        Counter(tag for _, tags in item_rows for tag in tags) for item_rows in by_item.values()
    ]
    total: Counter[str] = Counter()
    for counts in tag_counts:
        total.update(counts)
    names = [name for name, _ in total.most_common(MAX_SHOWN_TAGS)]
    sizes = [len(item_rows) for item_rows in by_item.values()]
    budget.check()
    shares = ratios_of_sums([[counts[name] for counts in tag_counts] for name in names], sizes)
    return Opinion(method, sum(sizes), rating, dict(zip(names, shares, strict=True)))


def nominal(first: Hashable, second: Hashable) -> float:
    """Return Krippendorff's difference function for categories: 0 if equal, 1 otherwise."""
    return float(first != second)


def interval(first: float, second: float) -> float:
    """Return Krippendorff's difference function for numbers: the squared difference."""
    return float(first - second) ** 2


def alpha(units: Iterable[Sequence[Any]], distance: Distance = nominal) -> float | None:
    """Return Krippendorff's alpha: 1 - observed disagreement / expected disagreement.

    units: for each unit, the values that reviewers assigned; units with one value are skipped.
    distance: the difference function. Returns None if the expected disagreement is 0. Source:
    Krippendorff, Computing Krippendorff's Alpha-Reliability (2011), section C.
    """
    weights: dict[tuple[Any, Any], float] = defaultdict(float)
    for unit in units:
        budget.check()
        counts = Counter(unit)
        for first, second in product(counts, repeat=2):
            pairs = counts[first] * (counts[second] - (first == second))
            if pairs:
                weights[first, second] += pairs / (len(unit) - 1)
    totals: dict[Any, float] = defaultdict(float)
    for (first, _), weight in weights.items():
        totals[first] += weight
    num_values = sum(totals.values())
    expected = sum(
        totals[first] * totals[second] * distance(first, second)
        for first, second in product(totals, repeat=2)
    )
    if not expected:
        return None
    observed = sum(weight * distance(*pair) for pair, weight in weights.items())
    return 1.0 - (num_values - 1) * observed / expected


@dataclass(frozen=True, slots=True)
class ReviewerAgreement:
    """Agreement between reviewers.

    num_shared: pairs of answers that several reviewers judged. preference, rating: Krippendorff's
    alpha; None if undefined.
    """

    num_reviewers: int
    num_shared: int
    preference: float | None
    rating: float | None


def agreement(rows: Iterable[Judgement]) -> ReviewerAgreement:
    """Return the agreement between reviewers.

    Pairs of equal answers are never shown to reviewers, so they are not included.
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
    """Return a sentence on what can be concluded from this number of judged prompts."""
    if not num_prompts:
        return "No judgements yet."
    if num_prompts < FEW:
        return f"{_counted(num_prompts)}: far too few to say which method is better."
    if num_prompts < ENOUGH:
        return (
            f"{_counted(num_prompts)}: only large differences are visible. An interval that "
            "contains 50 % allows no conclusion."
        )
    return (
        f"{_counted(num_prompts)}: if the intervals of two shares do not overlap, the methods "
        "differ on prompts like these."
    )


def _counted(num_prompts: int) -> str:
    return f"{num_prompts} judged {'prompt' if num_prompts == 1 else 'prompts'}"


@dataclass(frozen=True, slots=True)
class Marked:
    """Summary of the automatic checks of one method's answers.

    way: name of the method. category: "" for all answers. tpf: mean over the answers. num_same:
    answers equal to the reference's. first_word: median position, from 1, of the first different
    word in the other answers. num_looped: answers that end in a repetition loop. num_checked:
    answers with a checker; num_right: those that their checker accepts.
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
    """Map each category to the automatic checks of a method's answers; "" to all checks."""
    by_category: dict[str, list[Marks]] = defaultdict(list)
    for index, item in enumerate(review.items):
        answer, reference = (
            review.answer(index, method),
            review.answer(index, review.about.reference),
        )
        if answer and reference:
            checks = marks(answer, reference)
            for category in dict.fromkeys(("", item.category)):
                by_category[category].append(checks)
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
    """Return the results of the automatic checks as JSON values, with the set's provenance.

    ``marks`` contains the summary of each method, for all answers and for each category.
    ``examples`` contains the first difference from the reference per method and category.
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
    """The first prompt of a category for which a method's answer differs from the reference's.

    way: name of the method. item: id of the prompt.
    """

    way: str
    category: str
    item: str
    prompt: str
    difference: Difference


def _first_examples(review: ReviewSet, method: int) -> dict[str, FirstDifference]:
    """Map each category to the first prompt with different answers.

    Answers of the method and of the reference method are compared by words.
    """
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
    """Return the statistics of judgements as JSON values."""
    judged = list(rows)
    preferred = _preferences(review, judged)
    return {
        "preferences": [asdict(preference) for preference in preferred.get(None, [])],
        "by_category": {
            name: [asdict(preference) for preference in preferred.get(name, [])]
            for name in _categories(review)
        },
        "said": [asdict(opinion) for opinion in opinions(review, judged)],
        "agreement": asdict(agreement(judged)),
        "caution": caution(len({row.item for row in judged if row.preference})),
    }
