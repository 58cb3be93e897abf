// Pins lanes of a race view in the tray, opens pinned runs in the race view of the Compare view, and handles the
// requests "pin" and "open". Only a page with a Compare view supports these requests (views/page/page.js).

import { attribute, button, put } from "../../core/dom.js";
import { openView } from "../../core/tabs.js";
import { valueOf } from "../../core/wire.js";
import { dayOf, joined } from "../../core/words.js";
import { remember, tray } from "./tray.js";

export const PINS = ["pin", "open"]; // the requests handled here

/**
 * Returns the button that pins a lane in its current state and then shows that it is pinned.
 * @param {View} view
 * @param {Lane} lane
 */
export function pinButton(view, lane) {
  const attributes = {
    class: "rv-pin",
    title: "Save this run to compare it in Review",
    "aria-label": `Pin ${lane.title}`,
  };
  const node = button(attributes, "Pin", () => view.ask("pin", { lane, report }));
  /** @param {string} sentence */
  const report = (sentence) => {
    put(node, sentence ? "Pinned for now" : "Pinned");
    node.title = sentence || "Saved in Review";
    attribute(node, { "aria-label": `${lane.title} is pinned. ${sentence}`.trim() });
  };
  return node;
}

/**
 * Adds a lane to the tray. report: called when the lane is in the tray, with a sentence if it could not be stored, else
 * with "".
 * @param {{ lane: Lane, report?: (sentence: string) => void }} given
 */
async function pin({ lane, report = () => {} }) {
  if (!lane.lines.length) return;
  const { sentence } = await tray().add(lane.lines.slice(), { verdict: lane.verdict });
  report(sentence);
}

export function mountPins() {
  tray().begin(); // pinned runs have their colours in every tab
  document.addEventListener("mars-ask", ({ detail, target }) => {
    if (detail.kind === "pin") pin(detail);
    else if (detail.kind === "branch") remember((target instanceof Element && target.lineView?.run?.lanes) || []);
    else if (detail.kind === "open") openRun({ value: detail.value }).then(() => tray().tell());
  });
}

const VIEW = "#opened .mars-race";
const PATIENCE = 5000; // maximum milliseconds to wait until the view is mounted

/** @type {string | null} */
let shown = null; // id of the pin that is open

/**
 * Returns a pinned run as a value for the race view.
 * @param {Pin} given
 */
export function pinnedRun({ id, lane, name }) {
  const lanes = [{ lane: lane.name, title: lane.facts.title }];
  const head = { run: `pin-${id}`, lanes, pace: 0, recorded: joined(dayOf(lane.header), name) };
  return { pin: id, value: valueOf(head, [lane]) };
}

const view = () => document.querySelector(VIEW)?.lineView;

export const openedPin = () => shown;

/** @param {{ value: string, pin?: string | null }} given */
export async function openRun({ value, pin = null }) {
  if (!view()) openView("compare");
  const until = performance.now() + PATIENCE;
  while (!view() && performance.now() < until)
    await new Promise((resolve) => {
      setTimeout(resolve, 50);
    });
  const race = view();
  if (!race) return;
  shown = pin;
  race.read(value);
  requestAnimationFrame(() => race.root?.scrollIntoView({ block: "start" }));
}

export function closeRun() {
  shown = null;
  view()?.read("");
}
