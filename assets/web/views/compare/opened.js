// A run opened in the race view of the Compare tab, from wherever on the page it is asked for.

import { tabOf } from "../../core/dom.js";
import { headerOf } from "../../core/folds.js";
import { valueOf } from "../../core/wire.js";

const TAB = "Compare";
const VIEW = "#opened .mars-race";
const PATIENCE = 5000; // milliseconds for the tab to appear

/** @type {string | null} */
let shown = null; // the pin whose run is open

/**
 * What the race view reads of a pinned run.
 * @param {Pin} given
 */
export function pinnedRun({ id, lane, name }) {
  const day = (headerOf(lane).date || "").slice(0, 10);
  const recorded = [day, name].filter(Boolean).join(" · ");
  const head = {
    run: `pin-${id}`,
    lanes: [{ lane: lane.name, title: lane.facts.title }],
    pace: 0,
    recorded,
  };
  return { pin: id, value: valueOf(head, [lane]) };
}

const view = () => document.querySelector(VIEW)?.lineView;

export const openedPin = () => shown;

/** @param {{ value: string, pin?: string | null }} given */
export async function openRun({ value, pin = null }) {
  if (!view()) tabOf(TAB)?.click();
  const until = performance.now() + PATIENCE;
  while (!view() && performance.now() < until)
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
  const found = view();
  if (!found) return;
  shown = pin;
  found.read(value);
  requestAnimationFrame(() => found.root?.scrollIntoView({ block: "start" }));
}

export function closeRun() {
  shown = null;
  view()?.read("");
}
