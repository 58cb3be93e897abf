"""Measures what the page costs a race: tokens per second by the lanes' clocks, with and without it.

Run ``python app.py`` in one terminal and ``python tools/measure_race.py http://127.0.0.1:7860`` in
another. It runs the same race in turns through the endpoint, with an empty browser, and on the
page, with its charts drawn; browser, page and model share the machine. Prints medians and the ratio
of each pair. There is no pass or fail.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Mapping
from urllib.parse import urlencode

from gradio_client import Client
from measure_app import ask
from measure_page import RACE, called, chromium, machine, playwright

REQUEST = "Write a Python function that transposes a matrix given as a list of lists."
SETTINGS = {"auto_objective": "time", "repetition_penalty": 1.0}
"""Settings of both, since the page's initial ones differ from the endpoint's."""
LANES = ("MARS", "plain AR")


def through_the_endpoint(client: Client, request: str) -> dict[str, float]:
    """Return the tokens per second by lane while no page is open."""
    result = client.predict(request, **SETTINGS, api_name="/compare")
    return {
        lane: result[key]["tokens_per_second"]
        for lane, key in zip(LANES, ("mars", "ar"), strict=True)
    }


def on_the_page(view: playwright.Page, address: str, request: str) -> dict[str, float]:
    """Return the tokens per second by lane on a page that is opened for this run and left again."""
    view.goto(f"{address}?{urlencode(SETTINGS)}")
    view.wait_for_selector(f"{RACE}[data-state=finished]")
    view.wait_for_function("!document.querySelector('#footer').innerText.startsWith('Load')")
    ask(view, request)
    figures = [figure.inner_text() for figure in view.locator(f"{RACE} .rv-figure").all()]
    (speeds,) = [text for text in figures if text.startswith("tokens per second")]
    numbers = map(float, re.findall(r"\d+(?:\.\d+)?", speeds))  # hidden texts have no spaces
    view.goto("about:blank")
    return dict(zip(LANES, numbers, strict=True))


def told(lane: str, rounds: list[tuple[Mapping[str, float], Mapping[str, float]]]) -> str:
    alone, beside = ([pair[at][lane] for pair in rounds] for at in (0, 1))
    ratios = [page / endpoint for endpoint, page in zip(alone, beside, strict=True)]
    medians = [statistics.median(values) for values in (alone, beside, ratios)]
    return (
        f"{lane:<10}{medians[0]:8.0f} tokens/s without a page,{medians[1]:6.0f} with one,"
        f" ratio {medians[2]:.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("address", help="where the app is served")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--request", default=REQUEST)
    args = parser.parse_args()
    endpoint = args.address, args.request
    print(machine(), flush=True)
    client = Client(args.address, verbose=False)
    with chromium() as browser:
        view = browser.new_page(viewport={"width": 1440, "height": 1000})
        view.set_default_timeout(300_000)
        on_the_page(view, *endpoint)  # warm-up: draws panels, measures costs
        rounds = []
        for number in range(args.rounds):
            ways = (
                lambda: through_the_endpoint(client, args.request),
                lambda: on_the_page(view, *endpoint),
            )
            rates = [way() for way in (reversed(ways) if number % 2 else ways)]
            rounds.append((rates[number % 2], rates[1 - number % 2]))
        print(f"{called()} {browser.version}, {args.rounds} rounds of “{args.request}”")
    for lane in LANES:
        print(told(lane, rounds))
    leads = [
        statistics.median(pair[at][LANES[0]] / pair[at][LANES[1]] for pair in rounds)
        for at in (0, 1)
    ]
    print("MARS over plain AR: {:.2f} without a page, {:.2f} with one".format(*leads))


if __name__ == "__main__":
    main()
