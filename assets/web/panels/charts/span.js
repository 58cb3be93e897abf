// The one time axis that all charts of a run share: measured seconds of decoding, each lane on its own clock. Pure.

import { mainLane } from "../../core/folds.js";

const WINDOW = 240; // forwards shown while running; the whole run is shown at its end
const LEAST = 24; // forwards that an axis has room for while running, so that the first bars are bars and not walls

/**
 * From where to where the axis goes: all of a run that is over, and no more; of a live one the latest forwards.
 * @param {Lane[]} lanes
 * @param {boolean} isLive
 * @returns {Span}
 */
export function timeSpan(lanes, isLive) {
  const length = Math.max(...lanes.map((lane) => lane.steps.at(-1)?.clock ?? 0));
  if (!isLive) return { from: 0, to: length || 0.01 };
  const { steps } = mainLane({ lanes });
  const from = steps.length > WINDOW ? beginOf(steps[steps.length - WINDOW]) : 0;
  const each = length / Math.max(1, ...lanes.map((lane) => lane.steps.length));
  return { from, to: Math.max(length, from + LEAST * each) || 0.01 };
}

/**
 * When a forward began.
 * @param {Step} step
 */
export const beginOf = (step) => step.clock - step.seconds;

/**
 * The forwards of a lane that such an axis shows.
 * @param {Lane} lane
 * @param {Span} span
 */
export const stepsIn = (lane, { from, to }) => lane.steps.filter((step) => step.clock > from && beginOf(step) < to);

const [WIDE, HIGH] = [900, 150]; // pixels of a chart, about

/**
 * What could not be seen in a chart if it were finer; of few forwards everything can.
 * @param {Step[]} steps
 * @param {Span} span
 * @param {number} height
 */
export const finestOf = (steps, { from, to }, height) =>
  steps.length > WINDOW ? { time: (to - from) / WIDE, height: height / HIGH } : { time: 0, height: 0 };

// Confidence on a scale on which 0.9 and 0.99 are as far apart as 0.99 and 0.999: the number of nines.
export const TICKS = [0, 0.5, 0.9, 0.99, 0.999, 0.9999];
const MOST = 4; // nines; surer than that is drawn there

/** @param {number} p */
export const nines = (p) => Math.min(MOST, -Math.log10(Math.max(1 - p, 10 ** -MOST)));
