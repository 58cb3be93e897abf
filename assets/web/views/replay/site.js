// The list of a replay site: one recording per line, with what it measured. Text only, from the page's data.

import { find, make } from "../../core/dom.js";
import { counted, figure } from "../../core/words.js";
import { settingsText } from "../../text/card.js";
import { frame, pageData } from "./page.js";

const MOST = 8; // tokens per forward that fill the height of a bar

export function mountSite() {
  /** @type {{ title: string, recordings: ListedRun[] }} */
  const { title, recordings } = pageData();
  frame(title, false);
  const kinds = new Set(recordings.map((recording) => recording.circumstances));
  const isCommon = kinds.size === 1; // said once for all of them
  if (isCommon) find(document, ".rp-on").textContent = [...kinds][0];
  find(document, ".rp-list").append(...recordings.map((recording) => item(recording, isCommon)));
}

/**
 * @param {ListedRun} recording
 * @param {boolean} isCommon
 */
function item(recording, isCommon) {
  const node = make("li");
  const link = make("a", "", recording.title);
  link.href = recording.address;
  node.append(link, make("p", "", recording.why), bars(recording.counts), facts(recording));
  if (!isCommon) node.append(make("p", "rp-facts", recording.circumstances));
  return node;
}

/**
 * Tokens that each forward took, one bar per forward.
 * @param {number[]} counts
 */
function bars(counts) {
  const node = make("div", "rp-bars");
  node.setAttribute("aria-hidden", "true");
  for (const count of counts) {
    const bar = make("i", `rp-n${Math.min(count, 5)}`);
    bar.style.height = `${(Math.min(count, MOST) / MOST) * 100}%`;
    node.append(bar);
  }
  return node;
}

/** @param {ListedRun} given */
function facts({ settings, tpf, speedup, against, num_tokens: numTokens }) {
  const node = make("p", "rp-facts");
  node.append(make("b", "", `${figure(tpf)} TPF`));
  if (speedup) node.append(" · ", make("b", "", `${figure(speedup)}×`), ` the speed of ${against}`);
  node.append(` · ${settingsText(settings)} · ${counted(numTokens, "token")}`);
  return node;
}
