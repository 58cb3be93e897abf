"""Export a set and its judgements as CSV, JSON Lines, an HTML page or LLM Comparator's JSON.

Automatic checks and judgements are in separate columns. All texts are untrusted: HTML is escaped,
and a CSV cell that a spreadsheet would evaluate as a formula gets a leading apostrophe.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from mars_runtime.review import budget
from mars_runtime.review.answers import Answer, marks
from mars_runtime.review.figures import figures, opinions, preferences
from mars_runtime.review.judgements import (
    Judgement,
    JudgementError,
    current,
    merged,
    read_judgement,
)
from mars_runtime.review.sets import ReviewSet
from mars_runtime.statistics import Estimate

HEAD = "review"
"""Value of the key ``type`` in the first line of a JSON Lines file of judgements."""
MAX_LINES = 200_000
FORMULA_STARTS = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"
"""Characters at which a spreadsheet reads a cell as a formula; the last four are full-width."""
COLUMNS = (
    *("item", "category", "prompt", "reviewer", "time", "is_masked", "is_revealed"),
    *("left", "right", "preference", "preferred", "note"),
    *("left_rating", "right_rating", "left_tags", "right_tags"),
)
MARKED = ("text", "same_as_reference", "first_difference", "loop", "verdict", "tokens_per_forward")
COLOURS = ("#2f7cb8", "#8a94a3", "#bf6526")
"""Colours of bars with enough contrast on white and on black."""
STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --pale: #49566a; --page: #fff; --line: #d7dde5;
  --sunken: #f3f5f8; --one: #dbe9f6; --other: #d9f0e3; --warm: #94400f; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e9f0; --pale: #a3adba; --page: #101418;
  --line: #2c343e; --sunken: #1a2027; --one: #17405f; --other: #1c4a38; --warm: #f0a24a; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page);
  max-width: 1200px; margin: 2rem auto; padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.2rem; margin-top: 2.5rem; }
article { border-top: 1px solid var(--line); padding: 1rem 0; }
.prompt, .text { white-space: pre-wrap; unicode-bidi: plaintext; text-align: start; }
.prompt { background: var(--sunken); padding: .5rem .75rem; }
.answers { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem; }
h3 { font-size: .95rem; margin: .8rem 0 .2rem; }
.facts { color: var(--pale); font-size: .85rem; font-weight: 400; margin: 0; }
.group { background: var(--one); border-radius: 3px; } .group.odd { background: var(--other); }
.otherwise { text-decoration: underline wavy var(--warm); }
.chart { max-width: 44rem; }
.chart text { fill: var(--ink) !important; }
.chart .gridlayer path, .chart .zerolinelayer path { stroke: var(--line) !important; }
.chart .errorbar path { stroke: var(--ink) !important; }
"""
LAYOUT = {
    "template": "plotly_white",
    "barmode": "group",
    "height": 300,
    "margin": {"l": 40, "r": 8, "t": 36, "b": 36},
    "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"},
    "paper_bgcolor": "rgba(0,0,0,0)",
    "plot_bgcolor": "rgba(0,0,0,0)",
}
CONFIG = {"displayModeBar": False, "responsive": True}


def safe_cell(text: str) -> str:
    """Return the text, with an apostrophe before it if a spreadsheet would read a formula."""
    return f"'{text}" if text.startswith(tuple(FORMULA_STARTS)) else text


def to_csv(review: ReviewSet, rows: Iterable[Judgement], max_chars: int | None = None) -> str:
    """Return a CSV table: one line per judgement, with the automatic checks of both answers.

    Only the latest row of each judgement is included. Raises JudgementError if the table is longer
    than ``max_chars``.
    """
    out = io.StringIO(newline="")
    table = csv.writer(out)
    table.writerow([*COLUMNS, *(f"{side}_{name}" for side in ("left", "right") for name in MARKED)])
    numbers = {item.id: number for number, item in enumerate(review.items)}
    methods = {method.name: number for number, method in enumerate(review.about.methods)}
    marked: dict[tuple[str, str], list[object]] = {}
    for row in current(rows).values():
        budget.check()
        if row.item not in numbers or not {row.left, row.right} <= methods.keys():
            continue
        item = review.items[numbers[row.item]]
        cells: list[object] = [
            *(item.id, item.category, item.prompt, row.reviewer, row.time),
            *(row.is_masked, row.is_revealed, row.left, row.right, row.preference),
            *(row.preferred, row.note, *(rating or "" for rating in row.ratings)),
            *("; ".join(side_tags) for side_tags in row.tags),
        ]
        for method in (row.left, row.right):
            if (row.item, method) not in marked:
                marked[row.item, method] = _marked(review, numbers[row.item], methods[method])
            cells += marked[row.item, method]
        table.writerow([safe_cell(cell) if isinstance(cell, str) else cell for cell in cells])
        if max_chars is not None and out.tell() > max_chars:
            raise JudgementError(
                f"This table has more than {max_chars // 1_000_000} MB. Export JSON Lines "
                "instead, or use the command `review export`."
            )
    return out.getvalue()


def _marked(review: ReviewSet, item: int, method: int) -> list[object]:
    """Return the text and the automatic checks of an answer, for the columns MARKED."""
    answer, reference = review.answer(item, method), review.answer(item, review.about.reference)
    if answer is None or reference is None:
        return ["" if answer is None else answer.text, *[""] * (len(MARKED) - 1)]
    checks = marks(answer, reference)
    word = checks.difference.word + 1 if checks.difference else ""
    verdict = "" if checks.is_right is None else checks.is_right
    tpf = "" if checks.tpf is None else round(checks.tpf, 4)
    return [answer.text, checks.is_same, word, checks.is_looped, verdict, tpf]


def to_jsonl(review: ReviewSet, rows: Iterable[Judgement]) -> str:
    """Return all rows as JSON Lines, including undone and replaced rows, for ``merge``."""
    head = {"type": HEAD, "set": review.id, "name": review.about.name}
    lines = [head, *(row.as_json() for row in rows)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


def read_jsonl(text: str, set_id: str = "") -> list[Judgement]:
    """Parse the output of ``to_jsonl``.

    set_id: the set that the judgements must belong to; "" accepts any set. Raises JudgementError,
    which names the invalid line.
    """
    judgements: list[Judgement] = []
    is_headed = False
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        budget.check()
        if not line.strip():
            continue
        try:
            if number > MAX_LINES:
                raise JudgementError(
                    f"This file has more than {MAX_LINES:,} lines, the maximum. Split it."
                )
            value = json.loads(line)
            if not is_headed:
                is_headed = _check_head(value, set_id)
            else:
                judgements.append(read_judgement(value))
        except (JudgementError, RecursionError, ValueError) as error:
            is_explained = isinstance(error, JudgementError)
            reason = str(error) if is_explained else "This is not a judgement in JSON."
            raise JudgementError(f"Line {number}: {reason}") from error
    if not is_headed:
        raise JudgementError("This file is empty. Choose a file exported from the Review tab.")
    return judgements


def _check_head(head: Any, set_id: str) -> bool:
    if not isinstance(head, dict) or head.get("type") != HEAD:
        raise JudgementError(
            "This is not a file of judgements. Choose a file exported from the Review tab."
        )
    if set_id and head.get("set") != set_id:
        raise JudgementError("These judgements belong to another set. Open that set first.")
    return True


def merge(review: ReviewSet, texts: Sequence[str]) -> tuple[str, int]:
    """Merge JSON Lines files of judgements; return the merged file and the number of conflicts.

    Conflicting judgements are both kept (``judgements.merged``). Raises JudgementError.
    """
    combined = merged([read_jsonl(text, review.id) for text in texts])
    return to_jsonl(review, combined.rows), combined.num_conflicts


def to_comparator(review: ReviewSet, rows: Iterable[Judgement], method: int) -> str:
    """Return a comparison of the reference (A) with a method (B) for LLM Comparator 0.1 (PAIR).

    A positive score means that reviewers prefer A. A prompt without a judgement has no score.
    """
    about = review.about
    names = [about.methods[number].name for number in (about.reference, method)]
    votes = {names[0]: 1.0, names[1]: -1.0, "equal": 0.0}
    examples = []
    by_item: dict[str, list[Judgement]] = {}
    for row in current(rows).values():
        if {row.left, row.right} == set(names) and row.preference:
            by_item.setdefault(row.item, []).append(row)
    for index, item in enumerate(review.items):
        answers = [review.answer(index, number) for number in (about.reference, method)]
        judgements = by_item.get(item.id, [])
        scores = [votes[row.preferred] for row in judgements]
        examples.append(
            {
                "input_text": item.prompt,
                "tags": [item.category] if item.category else [],
                "output_text_a": answers[0].text if answers[0] else "",
                "output_text_b": answers[1].text if answers[1] else "",
                "score": sum(scores) / len(scores) if scores else None,
                "individual_rater_scores": [
                    {
                        "score": votes[row.preferred],
                        "rating_label": row.reviewer,
                        "is_flipped": row.left != names[0],
                        "rationale": row.note,
                        "custom_fields": {},
                    }
                    for row in judgements
                ],
                "rationale_list": [],
                "custom_fields": _fields(answers),
            }
        )
    schema = [
        {"name": "same text", "type": "category"},
        *({"name": f"tokens per forward pass {side}", "type": "number"} for side in "AB"),
    ]
    document = {
        "metadata": {"source_path": about.name, "custom_fields_schema": schema},
        "models": [{"name": name} for name in names],
        "examples": examples,
        "rationale_clusters": [],
    }
    return json.dumps(document, ensure_ascii=False, indent=1) + "\n"


def _fields(answers: Sequence[Answer | None]) -> dict[str, Any]:
    texts = {answer.text for answer in answers if answer}
    tpf = [answer.tpf if answer else None for answer in answers]
    return {
        "same text": "yes" if len(texts) == 1 and None not in answers else "no",
        **{f"tokens per forward pass {side}": value for side, value in zip("AB", tpf, strict=True)},
    }


def to_html(review: ReviewSet, rows: Iterable[Judgement]) -> str:
    """Return an HTML page with charts and all prompts, answers and judgements.

    The page needs no server. Tokens that one forward pass accepted share a background colour.
    """
    judgements = list(current(rows).values())
    title = escape(review.about.name)
    by_item: dict[str, list[Judgement]] = {}
    for row in judgements:
        by_item.setdefault(row.item, []).append(row)
    statistics = figures(review, judgements)
    parts = [f"<h1>{title}</h1>", _origin(review), f"<p>{escape(statistics['caution'])}</p>"]
    parts += _charts(review, judgements)
    parts.append("<h2>Prompts and answers</h2>")
    parts += [
        _article(review, index, by_item.get(item.id, [])) for index, item in enumerate(review.items)
    ]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def _origin(review: ReviewSet) -> str:
    provenance = review.about.made
    hardware = provenance.get("hardware")
    processor = hardware.get("processor", "") if isinstance(hardware, Mapping) else ""
    words = [f"{len(review.items)} prompts", *(method.name for method in review.about.methods)]
    words += [str(fact) for fact in (processor, str(provenance.get("date", ""))[:10]) if fact]
    return f'<p class="facts">{escape(" · ".join(words))}</p>'


def _article(review: ReviewSet, index: int, judgements: Sequence[Judgement]) -> str:
    item = review.items[index]
    reference = review.answer(index, review.about.reference)
    answers = "".join(
        _answer_html(method.name, answer, reference)
        for number, method in enumerate(review.about.methods)
        if (answer := review.answer(index, number)) is not None
    )
    judged = "".join(f"<li>{escape(_sentence(row))}</li>" for row in judgements)
    said_of_it = f"<ul>{judged}</ul>" if judged else ""
    category = (
        f' <span class="facts">{escape(item.category.replace("_", " "))}</span>'
        if item.category
        else ""
    )
    return (
        f"<article><h3>{escape(item.id)}{category}</h3>"
        f'<div class="prompt">{escape(item.prompt)}</div>'
        f'<div class="answers">{answers}</div>{said_of_it}</article>'
    )


def _sentence(row: Judgement) -> str:
    """Describe a judgement in one line: who preferred which method, ratings, tags and note."""
    verdict = {"": "no preference", "equal": "both equal"}.get(
        row.preference, f"prefers {row.preferred}"
    )
    words = [f"{row.reviewer}, {row.left} compared with {row.right}: {verdict}"]
    for method in (row.left, row.right):
        rating, tags = row.of(method)
        words += [f"{method} rated {rating}"] if rating else []
        words += [f"{method}: {', '.join(tags)}"] if tags else []
    masked = (
        ["judged after the methods were revealed" if row.is_revealed else "methods were hidden"]
        if row.is_masked
        else []
    )
    return "; ".join([*words, *([row.note] if row.note else []), *masked])


def _answer_html(name: str, answer: Answer, reference: Answer | None) -> str:
    checks = marks(answer, reference) if reference is not None else None
    facts = []
    if checks is not None:
        word = checks.difference.word + 1 if checks.difference else 0
        facts.append("same text" if checks.is_same else f"different from word {word} onwards")
        facts += ["loops"] if checks.is_looped else []
        facts += [] if checks.is_right is None else ["right" if checks.is_right else "wrong"]
        facts += [] if checks.tpf is None else [f"{checks.tpf:.2f} tokens per forward pass"]
    return (
        f'<div><h3>{escape(name)}</h3><p class="facts">{escape(", ".join(facts))}</p>'
        f'<div class="text">{"".join(_grouped(answer))}</div></div>'
    )


def _grouped(answer: Answer) -> Iterator[str]:
    """Yield the text as HTML, with an element for each pass that accepted several tokens."""
    if not answer.pieces:
        yield escape(answer.text)
        return
    at = 0
    for number, size in enumerate(answer.groups):
        pieces = [
            f'<span class="otherwise" title="{escape(f"AR: {answer.otherwise[position]}")}">'
            f"{escape(answer.pieces[position])}</span>"
            if position in answer.otherwise
            else escape(answer.pieces[position])
            for position in range(at, min(at + size, len(answer.pieces)))
        ]
        at += size
        css_class = "group odd" if number % 2 else "group"
        text = "".join(pieces)
        yield f'<span class="{css_class}">{text}</span>' if size > 1 else text


def _charts(review: ReviewSet, judgements: Sequence[Judgement]) -> list[str]:
    """Return HTML for the charts of preferences and ratings; [] if there are none."""
    import plotly.graph_objects as go
    import plotly.io

    drawn = []
    if preferred := preferences(review, judgements):
        reference = review.about.methods[review.about.reference].name
        names = ("the method", "neither", reference)
        methods = [preference.way for preference in preferred]
        shares = [("better", 0), ("equal", 1), ("worse", 2)]
        bars = [
            _bars(
                names[index],
                methods,
                [getattr(preference, share) for preference in preferred],
                COLOURS[index],
            )
            for share, index in shares
        ]
        drawn.append(("Preferred over the reference, share of judgements", bars))
    rated = [opinion for opinion in opinions(review, judgements) if opinion.rating is not None]
    if rated:
        methods, means = [opinion.way for opinion in rated], [opinion.rating for opinion in rated]
        bars = [_bars("rating", methods, means, COLOURS[0])]
        drawn.append(("Mean rating, 1 to 5", bars))
    parts = []
    for number, (title, bars) in enumerate(drawn):
        figure = go.Figure([{"type": "bar", **bar} for bar in bars], LAYOUT)
        chart = plotly.io.to_html(
            figure, full_html=False, include_plotlyjs=number == 0, config=CONFIG
        )
        about = "Error bars are 95 % intervals, bootstrapped by prompt."
        parts.append(
            f'<h2>{escape(title)}</h2><div class="chart">{chart}</div><p class="facts">{about}</p>'
        )
    return parts


def _bars(
    name: str, methods: Sequence[str], estimates: Sequence[Estimate | None], colour: str
) -> dict[str, Any]:
    """Return plotly's JSON for bars with intervals.

    Names are escaped because plotly interprets HTML in texts.
    """
    known = [estimate for estimate in estimates if estimate is not None]
    return {
        "name": escape(name),
        "marker": {"color": colour},
        "x": [escape(method) for method in methods],
        "y": [estimate.value for estimate in known],
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [estimate.high - estimate.value for estimate in known],
            "arrayminus": [estimate.value - estimate.low for estimate in known],
        },
    }
