"""Measures the page in a browser: long tasks of the race view while it streams and is scrubbed, and
its memory; or long tasks of the whole page.

``python tools/measure_page.py`` streams a run of 4,000 tokens, scrubs it live and finished with
each panel open, then runs fifty short ones. A task is an uninterrupted unit of work of the page's
main thread. Its CPU time is the page's own cost; its wall time also includes waiting on a busy
machine, so both are printed. There is no pass or fail.

``python tools/measure_page.py --address http://127.0.0.1:7860`` measures a running page instead: it
opens every tab, runs a prompt, and opens every panel. Long tasks are those that the browser reports
(``PerformanceObserver``); below them are the scripts of their frames with the most time.
"""

from __future__ import annotations

import argparse
import itertools
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [
    str(ROOT), str(ROOT / "tests"), str(ROOT / "tests/app"), str(ROOT / "tests/app/components"),
]  # fmt: skip

import sample_traces as samples  # noqa: E402
from browser import called, chromium, playwright  # noqa: E402
from live_page import INSIDE, LOADED, open_tab  # noqa: E402
from race_page import LAUNCHED, head, interleaved, page, streamed  # noqa: E402

from mars_runtime.settings import DecodeSettings  # noqa: E402

RACE = "#race .mars-race"
BOTH = {"mars": "MARS", "ar": "plain AR"}
UPDATES = 15  # a second
FORM = "{:<48}{:>9}{:>26}{:>10}{:>9}{:>8}"
LONG = 50.0  # milliseconds; a longer task is noticeable
CATEGORIES = "disabled-by-default-devtools.timeline,devtools.timeline,toplevel"
SCRUB = """async ([selector, seconds]) => {
  const scrubber = document.querySelector(selector + " .pl-scrubber");
  const until = performance.now() + 1000 * seconds;
  let i = 0;
  while (performance.now() < until) {
    // A hand that sweeps to and fro, and now and then leaps to an end.
    i += 1;
    const share = i % 40 === 0 ? Math.round((i / 40) % 2) : 0.5 + 0.5 * Math.sin(i / 15);
    scrubber.value = String(share * Number(scrubber.max));
    scrubber.dispatchEvent(new Event("input", { bubbles: true }));
    await new Promise(requestAnimationFrame);
  }
}"""


@dataclass(frozen=True)
class MainThreadTask:
    """One task of the main thread, in milliseconds."""

    wall: float
    cpu: float


def prepared(num_tokens: int, seconds: float) -> dict[str, Any]:
    """Return a race with this many tokens, and how its lines are spread over ``seconds``."""
    settings = DecodeSettings(tau=0.9, block_size=8)
    pieces = samples.Vocabulary()
    text, length = "", 0
    for paragraph in itertools.cycle(samples.PROSE.split("\n\n")):
        if length >= num_tokens:
            break
        text += paragraph + "\n\n"
        length += len(pieces.encode(paragraph + "\n\n"))
    moves = {step: replace(settings, tau=0.5 + 0.1 * (step % 5)) for step in range(100, 2000, 150)}
    lines = interleaved(samples.lanes(samples.Script(text, settings, moves)))
    return {"lines": lines, "per_update": max(1, round(len(lines) / (UPDATES * seconds)))}


def scene(num_tokens: int, seconds: float) -> Any:
    """Return a scene that streams the same race as a new run at each call."""
    made = prepared(num_tokens, seconds)
    numbers = itertools.count()

    def play() -> Iterator[str]:
        first = head(f"run-{num_tokens}-{next(numbers)}", BOTH, pace=0)
        yield from streamed(first, made["lines"], made["per_update"], 1 / UPDATES)

    return play


class Tracing:
    """Context manager that records the tasks of a page."""

    def __init__(self, session: playwright.CDPSession) -> None:
        self.session = session
        self.events: list[dict[str, Any]] = []
        self.is_complete = False
        session.on("Tracing.dataCollected", lambda data: self.events.extend(data["value"]))
        session.on("Tracing.tracingComplete", lambda _: setattr(self, "is_complete", True))

    def start(self) -> None:
        self.events.clear()
        self.is_complete = False
        self.session.send(
            "Tracing.start", {"categories": CATEGORIES, "transferMode": "ReportEvents"}
        )

    def stop(self, on: playwright.Page) -> list[MainThreadTask]:
        """Return the tasks of the thread that ran the page's script."""
        self.session.send("Tracing.end")
        while not self.is_complete:
            on.wait_for_timeout(50)
        names = {
            (event["pid"], event["tid"])
            for event in self.events
            if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
        }
        frames = [e for e in self.events if e["name"] == "FireAnimationFrame"]
        threads = [(e["pid"], e["tid"]) for e in frames if (e["pid"], e["tid"]) in names]
        busiest = max(set(threads), key=threads.count)
        return [
            MainThreadTask(event["dur"] / 1000, event.get("tdur", event["dur"]) / 1000)
            for event in self.events
            if event["name"] == "RunTask"
            and (event["pid"], event["tid"]) == busiest
            and "dur" in event
        ]


def row(name: str, tasks: list[MainThreadTask], seconds: float) -> str:
    """Return one line of the table."""
    cpu = sorted((task.cpu for task in tasks), reverse=True)
    wall = sorted((task.wall for task in tasks), reverse=True)
    longest = ", ".join(f"{value:.0f}" for value in cpu[:5])
    counts = [sum(value > LONG for value in values) for values in (cpu, wall)]
    busy = sum(cpu) / 10 / seconds
    return FORM.format(name, counts[0], longest, counts[1], f"{wall[0]:.0f}", f"{busy:.0f}")


def measure_tasks(view: playwright.Page, tracing: Tracing) -> Iterator[str]:
    """Yield the table's rows: streaming, the end of the run, scrubbing live and afterwards."""
    yield FORM.format("", "CPU > 50", "longest, CPU ms", "wall > 50", "longest", "% busy")
    panels = view.eval_on_selector_all(f"{RACE} .rv-tab", "tabs => tabs.map(t => t.textContent)")
    for number, panel in enumerate(panels or ["no panel"]):
        if panels:
            view.eval_on_selector_all(f"{RACE} .rv-tab", f"tabs => tabs[{number}].click()")
        yield from measure_panel(view, tracing, panel)


def measure_panel(view: playwright.Page, tracing: Tracing, panel: str) -> Iterator[str]:
    def over(name: str, act: Any) -> str:
        tracing.start()
        began = time.perf_counter()
        act()
        return row(f"{name}, {panel}", tracing.stop(view), time.perf_counter() - began)

    def stream() -> None:
        to_its_end(view, lambda: view.click("#play-long"))
        view.wait_for_timeout(2000)

    def scrub_live() -> None:
        before = view.get_attribute(RACE, "data-run")
        view.click("#play-long")
        view.wait_for_selector(f'{RACE}[data-state=running]:not([data-run="{before}"])')
        view.evaluate(SCRUB, [RACE, 8])
        view.wait_for_selector(f"{RACE}[data-state=finished]")

    yield over("streaming", stream)
    yield over("scrubbing while streaming", scrub_live)
    yield over("scrubbing, finished", lambda: view.evaluate(SCRUB, [RACE, 6]))


def measure_memory(
    view: playwright.Page, session: playwright.CDPSession, num_runs: int, run: Callable[[], object]
) -> Iterator[str]:
    """Yield the JS heap in MB after every tenth run, after garbage collection."""
    for number in range(num_runs + 1):
        if number % 10 == 0:
            view.wait_for_timeout(1500)
            session.send("HeapProfiler.collectGarbage")
            used = session.send("Runtime.getHeapUsage")["usedSize"] / 1e6
            nodes = session.send("Memory.getDOMCounters")["nodes"]
            yield f"after {number:>3} runs: {used:6.1f} MB of JS heap, {nodes} nodes"
        run()


def to_its_end(view: playwright.Page, begin: Callable[[], object]) -> None:
    """Start a run and wait until it has ended."""
    before = view.get_attribute(RACE, "data-run")
    begin()
    view.wait_for_selector(f'{RACE}[data-state=finished]:not([data-run="{before}"])')


OBSERVE = """() => {
  window.measured = { tasks: [], scripts: [] };
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) window.measured.tasks.push(duration);
  }).observe({ type: "longtask" });
  new PerformanceObserver((list) => {
    for (const frame of list.getEntries()) for (const script of frame.scripts) {
      const { sourceURL, sourceFunctionName, invoker, duration } = script;
      const layout = script.forcedStyleAndLayoutDuration;
      const file = sourceURL.split(/[?#]/)[0].split("/").pop();
      window.measured.scripts.push([duration, layout, file, sourceFunctionName || invoker]);
    }
  }).observe({ type: "long-animation-frame" });
}"""
TAKE = """() => {
  const { tasks, scripts } = window.measured;
  window.measured.tasks = [];
  window.measured.scripts = [];
  return { tasks, scripts };
}"""
PHASE = "{:<34}{:>8}{:>10}{:>10}"
SETTLE = 2000  # milliseconds after an action in which its work is done
PANELS = f"{RACE} .rv-panels [role=tab]"


def measure_whole_page(browser: playwright.Browser, address: str) -> Iterator[str]:
    """Yield the long tasks of each phase of a visit, each with its scripts of at least 20 ms."""
    view = browser.new_page(viewport={"width": 1440, "height": 900}, reduced_motion="reduce")
    view.set_default_timeout(300_000)
    view.add_init_script(f"({OBSERVE})()")
    yield PHASE.format("", "> 50 ms", "longest", "in all")

    def phase(name: str, act: Callable[[], object]) -> Iterator[str]:
        act()
        view.wait_for_timeout(SETTLE)
        measured = view.evaluate(TAKE)
        tasks = measured["tasks"]
        longest = f"{max(tasks, default=0):.0f}"
        yield PHASE.format(name, len(tasks), longest, f"{sum(tasks):.0f}")
        for duration, layout, file, function in sorted(measured["scripts"], reverse=True)[:4]:
            if duration >= 20:
                yield f"    {duration:5.0f} ms ({layout:.0f} of them layout) {file} {function}"

    def start() -> None:
        view.goto(address)
        view.wait_for_selector(f"{RACE}[data-state]")
        view.wait_for_function(LOADED)

    def stream() -> None:
        view.fill("#prompt textarea", PROMPT)
        to_its_end(view, lambda: view.click("#run"))

    yield from phase("open the page", start)
    for name in (*INSIDE, "how-it-works"):
        yield from phase(f"open {name}", lambda name=name: open_tab(view, name))
    yield from phase("back to live", lambda: open_tab(view, "live"))
    yield from phase("stream a run, and its end", stream)
    for number, title in enumerate(view.locator(PANELS).all_inner_texts()):
        tab = view.locator(PANELS).nth(number)
        yield from phase(f"open the panel {title}", tab.click)
    view.close()


PROMPT = "Write a JSON list of the seven days of the week, each with a name and a number."


def machine() -> str:
    """Return the processor's name and load, without which times mean nothing."""
    lines = (
        Path("/proc/cpuinfo").read_text("utf-8").splitlines()
        if platform.system() == "Linux"
        else []
    )
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    name = models[0] if models else platform.processor()
    return f"{name}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=4000)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long the run streams")
    parser.add_argument("--runs", type=int, default=50, help="runs over which memory is measured")
    parser.add_argument("--address", help="measure this running page as a whole")
    args = parser.parse_args()
    if args.address:
        print(machine(), flush=True)
        with chromium() as browser:
            for line in measure_whole_page(browser, args.address):
                print(line, flush=True)
        return
    blocks = page({"long": scene(args.tokens, args.seconds), "short": scene(400, 1.0)})
    _, address, _ = blocks.launch(
        prevent_thread_lock=True,
        quiet=True,
        ssr_mode=False,
        run_history=False,  # as in the app
        **LAUNCHED,
    )
    print(machine(), flush=True)
    with chromium() as browser:
        streams = f"{args.tokens} tokens in {args.seconds:.0f} s"
        print(f"{called()} {browser.version}, {streams}, {UPDATES} updates a second", flush=True)
        view = browser.new_page(viewport={"width": 1440, "height": 1000})
        view.set_default_timeout(300_000)
        view.goto(address)
        view.wait_for_selector(f"{RACE}[data-state=empty]")
        session = view.context.new_cdp_session(view)
        view.click("#play-short")
        view.wait_for_selector(f"{RACE}[data-state=finished]")
        view.wait_for_function("document.querySelectorAll('.js-plotly-plot').length === 4")

        def play_short() -> None:
            to_its_end(view, lambda: view.click("#play-short"))

        for line in measure_tasks(view, Tracing(session)):
            print(line, flush=True)
        for line in measure_memory(view, session, args.runs, play_short) if args.runs else ():
            print(line, flush=True)
    print(machine())
    blocks.close()


if __name__ == "__main__":
    main()
