"""Runs and handlers of the Batch tab: all prompts with each method in turn. Each method, called a
side, has the device to itself.

The first line of a value (``run_log.py``) has the sides and the prompts. Further lines are the
trace lines of a side, without proposals. Lines tagged ``totals`` and ``figures`` are computed from
the events; a figure is a Plotly figure as plain Python values. Lines tagged ``rounds`` have medians
and spreads over the rounds (``speedup.Rounds``). Colours in figures are names of CSS variables
(``PAGE_COLOURS``), which the browser resolves for light and dark.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from app.engines.engines import Engines, Served
from app.throughput.batch_order import MAX_TOKENS, BatchOrder, prompts_as_text, read_batch_order
from app.ui.examples import BATCH, ExampleBook, ExamplePages
from app.ui.rounds import in_turn, rounds_text
from app.ui.run_log import RunLog, RunLogs
from app.ui.stream import STOPPED, TabHandlers, TabRun, Transcript, Wait
from mars_runtime.engine.header import make_header
from mars_runtime.engine.request import Request
from mars_runtime.events import Event, Step
from mars_runtime.folds import num_accepted, steps, timeline, totals
from mars_runtime.methods import LOOKUP
from mars_runtime.speedup import NEAR, Rounds
from mars_runtime.text import Context
from mars_runtime.trace import TraceWriter

if TYPE_CHECKING:
    from mars_runtime.decoders.base import SettingsSource, Vocabulary
    from mars_runtime.decoders.baselines import BatchMethod
    from mars_runtime.decoders.forward_costs import ForwardCosts
    from mars_runtime.model.forward import CausalModel

NUM_EXAMPLES = 8
SIDES = ("a", "b")
TOTALS_SECONDS = 0.5  # time between two updates of the totals, which take 1 to 2 ms to compute
Figure = dict[str, Any]
NAMES = ("mars", "ar", "ink", "muted", "grid", "line", "warm", "bar-1", "ramp-2", "ramp-4", "sans")
PAGE_COLOURS = {name: f"@{name}" for name in NAMES}
CANNOT_PAY = (
    "Drafting does not save time here. This batch already uses the whole machine, so drafts make "
    "each forward pass slower, which cancels the gain from fewer passes."
)
LOOPED = "One text repeats itself. Its figures cover only the part before the loop."
LOOPED_SEVERAL = "{} texts repeat themselves. Their figures cover only the parts before the loops."
MAX_POINTS = 400  # maximum number of points per line; more would not be visible


def new_log(sides: Sequence[Mapping[str, str]], prompts: Sequence[str]) -> RunLog:
    """Return the log of a batch. sides: name, method and title of each side."""
    return RunLog({"sides": sides, "prompts": list(prompts)})


class BatchRun(TabRun[BatchOrder]):
    """All prompts with each method, in several rounds. The page shows the first round; the other
    rounds are only timed.
    """

    def __init__(self, order: BatchOrder, book: ExampleBook, max_seconds: float) -> None:
        self._methods = dict(zip(SIDES, order.methods, strict=False))
        sides = [
            {"side": name, "method": method, "title": order.title(method)}
            for name, method in self._methods.items()
        ]
        super().__init__(new_log(sides, order.prompts), order, book, max_seconds)
        self._folded = 0.0
        self._num_rounds = 0  # number of complete rounds
        self._timed = {name: Rounds() for name in self._methods}

    def decode(self, served: Served) -> Iterator[Wait]:
        """Run all rounds, then check the answers."""
        until = time.monotonic() + self.max_seconds * len(self._methods)
        for number in range(self.order.rounds):
            done: dict[str, Transcript] = {}
            for name in in_turn(list(self._methods), number):
                seconds = min(self.max_seconds, until - time.monotonic())
                if seconds <= 0 or self.is_cancelled:
                    break
                method = self._methods[name]
                side = start_side(served, self.order, name, method, seconds, self.owner)
                side.is_drawn = number == 0
                self.begin(side)
                yield from self.follow()
                if not side.is_done:
                    break
                done[name] = side
            if len(done) < len(self._methods):
                break
            self._note_round(done)
        self._say_how_it_ended(served)

    def _note_round(self, done: Mapping[str, Transcript]) -> None:
        """Add a complete round to the timings, and log the medians so far."""
        self._num_rounds += 1
        second = done.get("b")
        self._timed["a"].add(done["a"].events, second.events if second else None)
        if second:
            self._timed["b"].add(second.events, None)
        for name, timed in self._timed.items():
            self.log.add("rounds", {"side": name, **timed.plain()})

    def _say_how_it_ended(self, served: Served) -> None:
        end = self.transcripts[-1].end
        if self.is_cancelled or (end is not None and end.reason == "cancelled"):
            self.log.say(STOPPED, "stopped")
        elif end is not None and end.message and not self._num_rounds:
            self.log.say(end.message, "error")
        else:
            self._judge(served)
            self.log.say(self._finished_sentence(), "finished")

    def advance(self) -> None:
        """Log a status and new trace lines, and the totals twice per second."""
        side = self.transcripts[-1]
        self.say_situation(self._running_sentence() if side.events else "")
        has_news = self.collect()
        if not side.is_drawn:
            return
        now = time.monotonic()
        if side.end is not None or (has_news and now - self._folded > TOTALS_SECONDS):
            self._folded = now
            self._fold(side)

    def _fold(self, side: Transcript) -> None:
        so_far = totals(side.events)
        figures = {
            "tokens_per_second": so_far.tokens_per_second,
            "effective_tpf": so_far.effective_tpf,
            "counted_forwards": so_far.counted_forwards,
            "idle_share": so_far.idle_share,
        }
        self.log.add("totals", {"side": side.name, **asdict(so_far), **figures})
        if side.end is not None and so_far.num_forwards:
            drawn = [
                Side(self._title(side), self._methods[side.name] == "ar", side.events)
                for side in self.drawn
            ]
            both = {"time": time_figure(drawn), "forwards": forwards_figure(drawn)}
            self.log.add("figures", both)

    def _judge(self, served: Served) -> None:
        """Log which answers are correct, for prompts whose answers can be checked. Call it only
        after all timing is done.
        """
        for side in self.drawn:
            for row, prompt in enumerate(self.order.prompts):
                if row in side.finished:
                    about = {"side": side.name, "row": row}
                    self.judge(served, prompt, side.tokens[row], about)

    def _title(self, side: Transcript) -> str:
        return self.order.title(self._methods[side.name])

    def _running_sentence(self) -> str:
        running = f"Running {self._title(self.transcripts[-1])}"
        if self._num_rounds:
            return f"{running}, round {self._num_rounds + 1} of {self.order.rounds}…"
        if len(self.transcripts) < len(self._methods):
            last = self.order.title(self.order.methods[-1])
            return f"{running}; then {last} on the same prompts…"
        return f"{running}…"

    def _finished_sentence(self) -> str:
        """Return the final status: the number of timed rounds, the number of texts that repeat
        themselves, and a remark if drafting did not save time.
        """
        sentences = [f"Finished, {rounds_text(self._num_rounds, self.order.rounds)}."]
        num_looped = max(totals(side.events).num_looped for side in self.drawn)
        if num_looped:
            sentences.append(LOOPED if num_looped == 1 else LOOPED_SEVERAL.format(num_looped))
        if self._cannot_pay():
            sentences.append(CANNOT_PAY)
        return " ".join(sentences)

    def _cannot_pay(self) -> bool:
        """Whether the speedup of the cursor cache over AR was below NEAR in every round."""
        return self.order.methods == ("cursor", "ar") and self._timed["a"].speedup.high < NEAR


class BatchHandlers(TabHandlers[BatchRun]):
    most_tokens = MAX_TOKENS

    def __init__(self, engines: Engines, logs: RunLogs, book: ExampleBook) -> None:
        super().__init__(engines, logs, book)
        self.examples = ExamplePages(engines, book, NUM_EXAMPLES, BATCH, prompts_as_text)

    def read(self, values: Mapping[str, Any]) -> BatchRun:
        order = read_batch_order(values, self.limits(values))
        return BatchRun(order, self.book, self.engines.settings.max_seconds)

    def blank(self) -> RunLog:
        return new_log([], [])


def start_side(
    served: Served, order: BatchOrder, name: str, method: str, max_seconds: float, owner: str = ""
) -> Transcript:
    """Submit all prompts with one method, which gets the device to itself. Raises USER_ERRORS."""
    tokenizer = served.checkpoint.tokenizer
    prompts = [tokenizer.encode_prompt(prompt, system=order.system) for prompt in order.prompts]
    settings = order.of(method)
    decode = partial(_decode, prompts, method, order.batch_size, order.cache_block)
    run = served.engine.solo(decode, settings, deadline=max_seconds, owner=owner)
    every_id = tuple(token for prompt in prompts for token in prompt)
    header = make_header(
        served.checkpoint,
        prompts_as_text(order.prompts),
        Request(every_id, settings),
        name=order.title(method),
        context=Context(system=tokenizer.system_in_force(order.system)),
    )
    writer = TraceWriter(header, tokenizer.token_bytes, derives=False)
    return Transcript(name, run, writer, keeps_proposals=False)


def _decode(
    prompts: Sequence[Sequence[int]],
    method: str,
    batch_size: int,
    cache_block: int,
    model: CausalModel,
    vocabulary: Vocabulary,
    settings: SettingsSource,
    costs: ForwardCosts | None,
) -> Iterator[Event]:
    """Call ``decode_batch``. It is imported here, because importing torch at the start would delay
    the page.
    """
    from mars_runtime.decoders.baselines import decode_batch

    chosen = cast("BatchMethod", "cursor" if method == LOOKUP else method)
    return decode_batch(
        model, vocabulary, prompts, chosen, settings, batch_size, cache_block, costs
    )


@dataclass(frozen=True, slots=True)
class Side:
    """The run of one method, from which the figures are drawn."""

    title: str
    is_ar: bool
    events: Sequence[Event]


def time_figure(sides: Sequence[Side], colours: Mapping[str, str] = PAGE_COLOURS) -> Figure:
    """Plot the total number of tokens of all rows against decoding time, one line per method."""
    data: list[dict[str, Any]] = []
    labels = []
    for index, side in enumerate(sides):
        points = _thinned(timeline(side.events))
        colour, dash = _line_of(index, side, colours)
        line = {"shape": "hv", "width": 2, "color": colour, "dash": dash}
        x, y = [round(second, 5) for second, _ in points], [count for _, count in points]
        about = {"name": side.title, "hovertemplate": "%{y} tokens after %{x:.2f} s<extra></extra>"}
        data.append({"type": "scatter", "mode": "lines", "x": x, "y": y, "line": line, **about})
        # The lines end close together at the upper right, so the labels are at the lower right.
        text = f"{'╌╌' if dash == 'dash' else '━━'} {side.title}"
        place = {"x": 1, "y": 0.13 - 0.1 * index, "xref": "paper", "yref": "paper"}
        label = {"text": text, "showarrow": False, "font": {"color": colour, "size": 12}}
        labels.append({**place, **label, "xanchor": "right", "yanchor": "bottom"})
    layout = _plain_layout(colours, "decoding time (s)", "tokens, all rows")
    layout["yaxis"]["range"] = [0, 1.15 * max((trace["y"][-1] for trace in data), default=1) or 1]
    layout["xaxis"]["range"] = [0, 1.02 * max((trace["x"][-1] for trace in data), default=1) or 1]
    return {"data": data, "layout": layout | {"annotations": labels}}


def forwards_figure(sides: Sequence[Side], colours: Mapping[str, str] = PAGE_COLOURS) -> Figure:
    """Plot, for each forward pass, the accepted tokens upwards and the idle rows downwards.

    Each method has its own strip; the horizontal axis is shared. Bars of commit passes are darker.
    """
    layout = _plain_layout(colours, "forward pass", "")
    del layout["yaxis"]
    data: list[dict[str, Any]] = []
    titles, gap = [], 0.14 if len(sides) > 1 else 0.0
    height = (1 - gap * (len(sides) - 1)) / max(len(sides), 1)
    for index, side in enumerate(sides):
        top = 1 - index * (height + gap)
        axis = "y" if index == 0 else f"y{index + 1}"
        bars = _strip(steps(side.events), axis, colours)
        layout[f"yaxis{axis[1:]}"] = _count_axis(colours, [max(0.0, top - height), top], bars)
        data += bars
        title = {"x": 0, "xref": "paper", "xanchor": "left", "y": top, "yref": "paper"}
        font = {"color": colours["ar" if side.is_ar else "mars"], "size": 12}
        text = {"text": side.title, "yanchor": "bottom", "showarrow": False, "font": font}
        titles.append({**title, **text})
    longest = max((len(steps(side.events)) for side in sides), default=0)
    layout["xaxis"] |= {"range": [0.4, max(longest, 24) + 0.6], "showgrid": False}
    layout["xaxis"]["anchor"] = "free" if len(sides) > 1 else "y"
    layout["xaxis"]["position"] = 0
    more = {"annotations": titles, "barmode": "relative", "bargap": 0.12}
    layout["margin"] |= {"t": 24}
    return {"data": data, "layout": layout | more}


def _strip(forwards: Sequence[Step], axis: str, colours: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the bars of one method: accepted tokens upwards, idle rows downwards, by the reason
    why they are idle.
    """
    x = list(range(1, len(forwards) + 1))
    fills = [colours["mars" if step.is_commit else "ramp-4"] for step in forwards]
    accepted = {
        "name": "tokens accepted",
        "y": [num_accepted(step) for step in forwards],
        "marker": {"color": fills, "line": {"width": 0}},
        "hovertemplate": "pass %{x}: %{y} tokens<extra></extra>",
    }
    bars = [accepted]
    for wait, title, colour in (
        ("block", "waiting for the other rows' blocks", "warm"),
        ("finished", "finished", "bar-1"),
    ):
        counts = [sum(idle.wait == wait for idle in step.idle) for step in forwards]
        bars.append(
            {
                "name": title,
                "y": [-count for count in counts],
                "customdata": counts,
                "marker": {"color": colours[colour], "line": {"width": 0}},
                "hovertemplate": f"pass %{{x}}: %{{customdata}} rows {title}<extra></extra>",
            }
        )
    return [{"type": "bar", "x": x, "yaxis": axis, **bar} for bar in bars]


def _line_of(index: int, side: Side, colours: Mapping[str, str]) -> tuple[str, str]:
    """Return the colour and dash of a method's line: AR has its own colour, and a second MARS
    method is dashed.
    """
    if side.is_ar:
        return colours["ar"], "solid"
    return colours["mars"], "dash" if index else "solid"


def _thinned(points: list[tuple[float, int]]) -> list[tuple[float, int]]:
    """Return about MAX_POINTS of the points, including the last one."""
    stride = -(-len(points) // MAX_POINTS)
    thinned = points[::stride]
    return thinned if thinned[-1] == points[-1] else [*thinned, points[-1]]


def _count_axis(
    colours: Mapping[str, str], domain: list[float], bars: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return an axis with tokens above zero and idle rows below. Tick labels have no sign."""
    high = max((count for count in bars[0]["y"]), default=1)
    low = max((-a - b for a, b in zip(bars[1]["y"], bars[2]["y"], strict=True)), default=0)
    step = max(1, -(-(high + low) // 4))
    ticks = [*range(-step * (low // step), 0, step), *range(0, high + 1, step)]
    return {
        "domain": domain,
        "range": [-1.1 * low - 0.1, 1.1 * high],
        "tickvals": ticks,
        "ticktext": [str(abs(tick)) for tick in ticks],
        "color": colours["muted"],
        "gridcolor": colours["grid"],
        "zeroline": True,
        "zerolinecolor": colours["muted"],
        "title": {"text": "idle | tokens" if low else "tokens", "font": {"size": 11}},
    }


def _plain_layout(colours: Mapping[str, str], x_title: str, y_title: str) -> Figure:
    """Return the layout that all figures share: no background, few grid lines, titled axes, no
    legend.
    """
    axis = {
        "color": colours["muted"],
        "gridcolor": colours["grid"],
        "linecolor": colours["line"],
        "zeroline": False,
        "tickmode": "auto",
        "nticks": 7,
    }
    return {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"family": colours["sans"], "size": 12, "color": colours["muted"]},
        "margin": {"l": 52, "r": 16, "t": 8, "b": 40},
        "showlegend": False,
        "xaxis": {**axis, "title": {"text": x_title}},
        "yaxis": {**axis, "title": {"text": y_title}},
    }
