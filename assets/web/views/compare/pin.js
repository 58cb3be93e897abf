// Pins a lane of a race view into the tray, and answers what pages ask: "pin" and "open". A page that has a
// Compare tab says so (views/page/page.js); elsewhere nobody asks.

import { make, put } from "../../core/dom.js";
import { remember } from "./branches.js";
import { openRun } from "./opened.js";
import { tray } from "./tray.js";

export const PINS = ["pin", "open"]; // what is answered here

/**
 * A button for the head of a pane: it says whether the lane, as it was then, is in the tray.
 * @param {View} view
 * @param {Lane} lane
 */
export function pinButton(view, lane) {
  const button = make("button", "rv-pin", "Pin");
  button.type = "button";
  button.title = "Keep this run for the Compare tab";
  button.setAttribute("aria-label", `Pin ${lane.title}`);
  /** @param {string} sentence */
  const report = (sentence) => {
    put(button, sentence ? "Pinned for now" : "Pinned");
    button.title = sentence || "It is in the tray of the Compare tab";
    button.setAttribute("aria-label", `${lane.title} is pinned. ${sentence}`.trim());
  };
  button.addEventListener("click", () => view.ask("pin", { lane, report }));
  return button;
}

/**
 * lane: any lane of trace lines; report(sentence): called when it is in the tray, "" where all is well.
 * @param {{ lane: Lane, report?: (sentence: string) => void }} given
 */
async function pin({ lane, report = () => {} }) {
  if (!lane.lines.length) return;
  const { sentence } = await tray().add(lane.lines.slice(), { verdict: lane.verdict });
  report(sentence);
}

export function mountPins() {
  tray().begin(); // pinned runs wear their colours in every tab
  document.addEventListener("mars-ask", ({ detail, target }) => {
    if (detail.kind === "pin") pin(detail);
    else if (detail.kind === "branch") remember((target instanceof Element && target.lineView?.run?.lanes) || []);
    else if (detail.kind === "open") openRun({ value: detail.value }).then(() => tray().tell());
  });
}
