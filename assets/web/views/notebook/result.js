// A finished run or race in the output of a notebook cell: the headline and, for each lane, its text grouped by pass
// and a bar for each pass.

import { fitFrame, isDarkAround, watchAround } from "../../core/around.js";
import { attribute, find, make } from "../../core/dom.js";
import { compared, divergence, mainLane } from "../../core/folds.js";
import { Lane } from "../../core/trace.js";
import { readValue } from "../../core/wire.js";
import { Pane } from "../../text/panes.js";
import { Headline } from "../race/headline.js";
import { bars, pageData } from "../replay/parts.js";

const NO_REPORT = { token() {}, leave() {}, choose() {} };

export function mountResult() {
  const follow = () => document.documentElement.classList.toggle("dark", isDarkAround());
  watchAround(follow);
  follow();
  const root = find(document, ".mars-race");
  const lanes = lanesOf(pageData().value);
  const main = mainLane({ lanes });
  const others = lanes.filter((lane) => lane !== main);
  const comparison = others.length === 1 ? compared(lanes, divergence(main, others[0], 0)) : null;
  new Headline(find(root, ".rv-headline")).draw(main, others, comparison);
  const panes = lanes.map((lane) => new Pane(lane, false, NO_REPORT));
  const element = find(root, ".rv-panes");
  element.classList.add("rv-counts");
  attribute(element, { "data-count": lanes.length });
  element.replaceChildren(...panes.map(({ element }) => element));
  for (const { lane, element } of panes) {
    const counts = lane.steps.map(({ count }) => count);
    const label = `Tokens of each forward pass: ${counts.join(", ")}`;
    find(element, ".rv-body").append(make("div", { role: "img", "aria-label": label }, bars(counts)));
  }
  draw(panes, comparison);
  attribute(root, { "data-state": "done", "data-lanes": lanes.length });
  fitFrame();
}

/**
 * Parses the lanes from the value of a race view.
 * @param {string} value
 */
function lanesOf(value) {
  const { head, lines } = readValue(value);
  return head.lanes.map(({ lane, title }) =>
    Lane.of(
      lines.filter(([tag]) => tag === lane).map(([, text]) => text),
      { lane, title },
    ),
  );
}

/**
 * Draws the panes. A long text is drawn over several frames.
 * @param {Pane[]} panes
 * @param {Compared | null} comparison
 */
function draw(panes, comparison) {
  for (const pane of panes) {
    pane.draw(pane.lane);
    if (comparison) pane.compared(comparison);
  }
  if (panes.some(({ view }) => !view.isWhole)) requestAnimationFrame(() => draw(panes, comparison));
}
