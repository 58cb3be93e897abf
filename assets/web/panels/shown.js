// Finds the lanes that the panels show: one lane and plain AR, each in its displayed state.

import { mainLane } from "../core/folds.js";

/**
 * Returns the lane that panels show: the main lane or, if the visitor has chosen a pass of another lane that is not
 * plain AR, this other lane.
 * @param {View} view
 */
export function subject(view) {
  const { selected } = view;
  return selected && !selected.lane.isAr ? selected.lane : mainLane(view.run);
}

/**
 * Returns the lane that panels show and, if present, the plain AR lane, both in their displayed state.
 * @param {View} view
 */
export function shownLanes(view) {
  if (!view.run || !view.run.lanes.length) return [];
  const main = subject(view);
  const other = view.run.lanes.find((lane) => lane !== main && lane.isAr);
  return [view.shown(main), other && view.shown(other)];
}

/**
 * Returns a key that changes whenever the result of `shownLanes` changes.
 * @param {View} view
 */
export function shownKey(view) {
  if (!view.run || !view.run.lanes.length) return "";
  return [
    view.run.id,
    subject(view).name,
    ...view.run.lanes.map((lane) => `${view.shown(lane).steps.length}${view.shown(lane).end ? "." : ""}`),
  ].join(" ");
}
