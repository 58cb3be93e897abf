// A finished run or race in the output of a notebook's cell: the headline, and of each lane its text in groups and its
// passes.

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
  const found = others.length === 1 ? compared(lanes, divergence(main, others[0], 0)) : null;
  new Headline(find(root, ".rv-headline")).draw(main, others, found);
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
  draw(panes, found);
  attribute(root, { "data-state": "done", "data-lanes": lanes.length });
  fitFrame();
}

/**
 * Returns the lanes of a race view's value.
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
 * Draws the panes; a long text takes some frames.
 * @param {Pane[]} panes
 * @param {Compared | null} found
 */
function draw(panes, found) {
  for (const pane of panes) {
    pane.draw(pane.lane);
    if (found) pane.compared(found);
  }
  if (panes.some(({ view }) => !view.isWhole)) requestAnimationFrame(() => draw(panes, found));
}
