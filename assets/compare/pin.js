// Pins a lane of a race view into the tray, and answers the page's asks "pin" and "open".

import { make, put } from "../common/dom.js";
import { openRun } from "./opened.js";
import { tray } from "./tray.js";

// A button for the head of a pane: it says whether the lane, as it stands, is in the tray.
export function pinButton(lane) {
  const button = make("button", "rv-pin", "Pin");
  button.type = "button";
  button.title = "Keep this run for the Compare tab";
  button.setAttribute("aria-label", `Pin ${lane.title}`);
  let pinned = 0; // how many lines it had
  button.addEventListener("click", async () => {
    if (pinned === lane.lines.length) return;
    pinned = lane.lines.length;
    const { sentence } = await pinLane(lane);
    put(button, sentence ? "Pinned for now" : "Pinned");
    button.title = sentence || "It is in the tray of the Compare tab";
    button.setAttribute("aria-label", `${lane.title} is pinned. ${sentence}`.trim());
  });
  return button;
}

export const pinLane = (lane) => tray.add(lane.lines.slice(), { verdict: lane.verdict });

document.addEventListener("mars-ask", ({ detail }) => {
  if (detail.kind === "pin") pinLane(detail.lane);
  else if (detail.kind === "open") openRun({ value: detail.value });
});
