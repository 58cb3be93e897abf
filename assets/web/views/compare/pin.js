// Pins a lane of a race view into the tray, opens a pinned run in the race view of the view Compare, and handles the
// requests "pin" and "open". Only a page with that view supports them (views/page/page.js).

import { attribute, button, put } from "../../core/dom.js";
import { openView } from "../../core/tabs.js";
import { valueOf } from "../../core/wire.js";
import { dayOf, joined } from "../../core/words.js";
import { remember, tray } from "./tray.js";

export const PINS = ["pin", "open"]; // the requests handled here

/**
 * Returns a button for a pane's head that shows whether the lane, in its present state, is in the tray.
 * @param {View} view
 * @param {Lane} lane
 */
export function pinButton(view, lane) {
  const given = { class: "rv-pin", title: "Keep this run to compare it in Review", "aria-label": `Pin ${lane.title}` };
  const node = button(given, "Pin", () => view.ask("pin", { lane, report }));
  /** @param {string} sentence */
  const report = (sentence) => {
    put(node, sentence ? "Pinned for now" : "Pinned");
    node.title = sentence || "Kept in Review";
    attribute(node, { "aria-label": `${lane.title} is pinned. ${sentence}`.trim() });
  };
  return node;
}

/**
 * lane: any lane of trace lines. report(sentence): called when it is in the tray; "" if there is no problem.
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
const PATIENCE = 5000; // milliseconds to wait for the tab

/** @type {string | null} */
let shown = null; // the pin of the opened run

/**
 * Returns a pinned run as the race view's value.
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
