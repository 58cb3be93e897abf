// Which forward of which lane is under the pointer in a chart, and what becomes of pointing and pressing.

import { mainLane, numUntil } from "../../core/folds.js";

/** @type {Record<string, ((step: Step) => number) | undefined>} */
const HEIGHTS = { time: (step) => step.first + step.count, latency: (step) => step.seconds * 1000 };

/**
 * The forward that was going on at a time; -1 for none.
 * @param {Lane} lane
 * @param {number} time
 */
function stepAt(lane, time) {
  const index = numUntil(lane, time);
  return time >= 0 && index < lane.steps.length ? index : -1;
}

/**
 * The forward under the pointer: its whole column answers, however low its bar is; where all lanes are drawn, that of
 * the nearest. Null beside them.
 * @param {string} key
 * @param {PlotNode} node
 * @param {Run} run
 * @param {MouseEvent} event
 * @returns {{ lane: Lane, index: number, anchor: Anchor } | null}
 */
function under(key, node, run, event) {
  const { xaxis, yaxis } = node._fullLayout;
  const box = node.getBoundingClientRect();
  const [x, y] = [event.clientX - box.left - xaxis._offset, event.clientY - box.top - yaxis._offset];
  if (x < 0 || x > xaxis._length || y < 0 || y > yaxis._length) return null;
  const height = HEIGHTS[key];
  const found = (height ? run.lanes : [mainLane(run)])
    .map((lane) => ({ lane, index: stepAt(lane, xaxis.p2l(x)) }))
    .filter(({ index }) => index >= 0);
  /** @param {{ lane: Lane, index: number }} given */
  const away = ({ lane, index }) => (height ? Math.abs(yaxis.l2p(height(lane.steps[index])) - y) : 0);
  const nearest = found.sort((a, b) => away(a) - away(b))[0];
  const top = box.top + yaxis._offset;
  const anchor = { left: event.clientX, right: event.clientX, top, bottom: top + yaxis._length };
  return nearest ? { ...nearest, anchor } : null;
}

/**
 * @param {string} key
 * @param {PlotNode} node
 * @param {() => Run | null} runOf
 * @param {ChartReport} report
 */
export function listen(key, node, runOf, report) {
  /** @param {MouseEvent} event */
  const at = (event) => {
    const run = runOf();
    return run && under(key, node, run, event);
  };
  node.addEventListener("pointermove", (event) => {
    const found = at(event);
    if (!found || event.buttons) return report.leave();
    return report.step(found.lane, found.index, found.anchor);
  });
  node.addEventListener("pointerleave", () => report.leave());
  // Plotly covers the page while a button is down: a press that ends where it began is a click.
  node.addEventListener(
    "pointerdown",
    (press) => {
      const found = at(press);
      if (!found || press.button !== 0) return;
      window.addEventListener(
        "pointerup",
        (event) => {
          const isStill = Math.hypot(event.clientX - press.clientX, event.clientY - press.clientY) < 4;
          if (isStill) report.choose(found.lane, found.index);
        },
        { once: true },
      );
    },
    true,
  );
}
