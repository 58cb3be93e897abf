"""The report as one HTML file: answers, tables, figures. Nothing is loaded from anywhere: plotly.js
is written into the file. Every text is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go
import plotly.io

from mars_runtime.lab.benchmark import report
from mars_runtime.lab.benchmark.figures import Compared, Measured, figures_of
from mars_runtime.lab.benchmark.report import Findings
from mars_runtime.lab.tables import Table
from mars_runtime.statistics import Estimate

COLOURS = ("#215f9a", "#94400f", "#217654", "#8a5a00", "#6b3fa0", "#a02c4a", "#3a6d7c", "#555555")
SYMBOLS = ("circle", "diamond", "square")
FIGURE_HEIGHT = 380
STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1c2430; background: #fff;
  max-width: 1100px; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.3rem; margin-top: 2.5rem; }
.scroll { overflow-x: auto; margin: 1rem 0 1.5rem; }
table { border-collapse: collapse; font-size: .88rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding-bottom: .4rem; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid #d7dde5; text-align: right;
  vertical-align: top; }
th:first-child, td:first-child { text-align: left; }
.warning { border-left: 4px solid #94400f; background: #fbf1ea; padding: .6rem 1rem; }
.place { color: #49566a; }
"""


def page(found: Findings) -> str:
    """The whole file."""
    first = True
    title = f"Benchmark of {escape(str(found.subject['name']))}"
    parts = [f"<h1>{title}</h1>", _origin(found)]
    parts += [f'<p class="warning">{escape(text)}</p>' for text in found.warnings]
    if found.answers:
        items = "".join(f"<li>{escape(text)}</li>" for text in found.answers)
        parts.append(f"<h2>In short</h2><ul>{items}</ul>")
    for series in found.series:
        parts.append(f"<h2>{escape(series.heading)}</h2>")
        compared = found.compared_in(series)
        for figure in (ratio_figure(compared), rate_figure(series), survival_figure(series)):
            if figure is not None:
                parts.append(_figure(figure, found.note, carries_library=first))
                first = False
        parts += [table_html(table) for table in found.series_tables(series)]
    parts.append("<h2>What a forward costs</h2>")
    parts.append(_figure(rho_figure(found), found.note, carries_library=first))
    parts += [table_html(table) for table in found.machine_tables()]
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    )


def table_html(table: Table) -> str:
    """A table in a box that scrolls by itself on a narrow screen."""
    head = "".join(f'<th scope="col">{_cell(name)}</th>' for name in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{_cell(cell)}</td>" for cell in line) + "</tr>"
        for line in table.lines
    )
    return (
        f'<div class="scroll"><table><caption>{escape(table.title)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def ratio_figure(compared: Sequence[Compared]) -> Any:
    """How many times the tokens/s, by text: a mark with its interval for each comparison."""
    figure = go.Figure()
    for at, one in enumerate(compared):
        points: list[tuple[str, Estimate | None]] = [("all families", one.overall)]
        points += one.by_family.items()
        known = [(text.replace("_", " "), found) for text, found in points if found is not None]
        figure.add_scatter(
            x=[text for text, _ in known],
            y=[found.value for _, found in known],
            error_y=_intervals(found for _, found in known),
            mode="markers",
            marker={"color": _colour(at), "size": 9, "symbol": SYMBOLS[at // len(COLOURS) % 3]},
            name=_text(one.name),
        )
    figure.update_layout(scattermode="group")  # side by side: intervals must not hide each other
    figure.add_hline(y=1, line_dash="dot", line_color="#49566a")
    return _dressed(figure, "How many times the tokens/s, with 95 % intervals", "times")


def rate_figure(series: Measured) -> Any:
    """Tokens a second of every peer, median over questions."""
    found = figures_of(series.samples, series.peers)
    figure = go.Figure(
        go.Bar(
            x=[one.decode_rate or one.whole_rate for one in found.values()],
            y=[_text(peer) for peer in found],
            orientation="h",
            marker={"color": COLOURS[0]},
        )
    )
    figure.update_yaxes(autorange="reversed")
    title = "Tokens/s over all rows, prefill apart: median over questions"
    return _dressed(figure, title, "", "tokens/s")


def survival_figure(series: Measured) -> Any:
    """Acceptance by position; None where nobody proposed more than one token."""
    lines = report.survivals(series)
    if not lines:
        return None
    figure = go.Figure()
    for at, (peer, values) in enumerate(lines.items()):
        positions = range(1, len(values) + 1)
        _add_line(figure, at, _text(peer), positions, [100 * value for value in values])
    figure.update_yaxes(range=[0, 103])
    title = "Acceptance by position: share of forwards that gave a token there"
    return _dressed(figure, title, "%", "position in the forward")


def rho_figure(found: Findings) -> Any:
    """rho(Q) of every batch size that was measured."""
    figure = go.Figure()
    for at, (rows, curve) in enumerate(found.curves.items()):
        widths, rhos = [one.width for one in curve], [one.rho for one in curve]
        values = [one.value for one in rhos]
        _add_line(figure, at, f"batch {rows}", widths, values, error_y=_intervals(rhos))
    figure.add_hline(y=1, line_dash="dot", line_color="#49566a")
    return _dressed(figure, "rho(Q): what a forward of Q tokens per row costs", "times", "Q")


def _add_line(
    figure: Any, at: int, name: str, x: Iterable[int], y: Sequence[float], **more: Any
) -> None:
    line = {"color": _colour(at)}
    figure.add_scatter(x=list(x), y=y, mode="lines+markers", line=line, name=name, **more)


def _intervals(found: Iterable[Estimate]) -> dict[str, Any]:
    """Error bars from the ends of intervals."""
    ends = [(one.high - one.value, one.value - one.low) for one in found]
    array, arrayminus = map(list, zip(*ends, strict=True)) if ends else ([], [])
    return {"type": "data", "symmetric": False, "array": array, "arrayminus": arrayminus}


def _dressed(figure: Any, title: str, y_title: str, x_title: str = "") -> Any:
    figure.update_layout(
        title={"text": title, "font": {"size": 15}},
        template="plotly_white",
        font={"family": "system-ui, sans-serif", "size": 13, "color": "#1c2430"},
        height=FIGURE_HEIGHT,
        margin={"l": 60, "r": 20, "t": 50, "b": 50},
        showlegend=len(figure.data) > 1,
        legend={"orientation": "h", "y": -0.2},
    )
    figure.update_yaxes(title_text=y_title, automargin=True)
    figure.update_xaxes(title_text=x_title)
    return figure


def _figure(figure: Any, note: str, *, carries_library: bool) -> str:
    if note:
        text = f"{figure.layout.title.text}<br><sub>{_text(note)}</sub>"
        figure.update_layout(title_text=text)
    found: str = plotly.io.to_html(
        figure,
        full_html=False,
        include_plotlyjs=carries_library,
        include_mathjax=False,
        config={"displaylogo": False, "responsive": True},
    )
    return found


def _origin(found: Findings) -> str:
    lines = [*found.origin_lines, f"{found.origin['date']}, commit {found.origin['commit']}"]
    return f'<p class="place">{"<br>".join(map(escape, lines))}</p>'


def _cell(text: str) -> str:
    """Intervals below their value, as in the terminal."""
    return escape(text).replace(" [", "<br>[").replace(" · ", "<br>").replace("_", " ")


def _text(text: str) -> str:
    """plotly reads a little HTML in its texts: none of it may come from a name."""
    return escape(text, quote=False)


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]
