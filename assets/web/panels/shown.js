// What panels speak of: a lane and plain AR beside it, as far as they are shown.

import { mainLane } from "../core/folds.js";

/**
 * The lane that panels speak of: the main one, or another MARS lane of which a forward is chosen.
 * @param {View} view
 */
export function subject(view) {
  const { selected } = view;
  return selected && !selected.lane.isAr ? selected.lane : mainLane(view.run);
}

/**
 * That lane and plain AR beside it, if there is one, as far as they are shown.
 * @param {View} view
 */
export function shownLanes(view) {
  if (!view.run || !view.run.lanes.length) return [];
  const main = subject(view);
  const other = view.run.lanes.find((lane) => lane !== main && lane.isAr);
  return [view.shown(main), other && view.shown(other)];
}

/**
 * Changes whenever `shownLanes` does.
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
