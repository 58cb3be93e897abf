// Sentences and the legend under a picture of cache slots: what a moment of it shows. No state.

import { counted, short } from "../core/words.js";
import { make } from "../core/dom.js";

/** @param {SlotRun[]} runs */
export function legend(runs) {
  const isLossless = runs[0].forwards[0].isLossless;
  const entries = [
    ["final", "keys and values final"],
    ["pending", "accepted, fed again as a real token"],
    ["mask", "mask, overwritten next time"],
  ];
  if (isLossless)
    entries.push(
      ["draft", "draft, not emitted yet"],
      ["agreed ex-n3", "AR agrees ✓"],
      ["replaced ex-n3", "AR's own token instead ↺"],
      ["dropped", "dropped ✗"],
    );
  else entries.push(["accepted ex-n3", "accepted ✓"], ["refused", "refused, below τ ✗"]);
  const list = make("p", "ex-legend");
  for (const [kind, text] of entries) {
    const entry = make("span", "ex-entry");
    entry.append(make("i", `ex-key ex-${kind}`), text);
    list.append(entry);
  }
  return list;
}

/**
 * What a forward of the cursor did, beside the block cache.
 * @param {SlotMoment[]} states
 * @param {SlotRun[]} runs
 */
export function cacheWords(states, runs) {
  const [cursor, block] = states;
  const parts = [];
  if (!cursor.now) return "Nothing is fed yet: the prompt is in the cache, all but its last token.";
  const { now } = cursor;
  if (cursor.isOver) parts.push(`Cursor: done in ${runs[0].forwards.length} forwards.`);
  else if (!cursor.isRead)
    parts.push(
      `Cursor: forward ${now.index + 1} feeds ${counted(now.numPending, "real token")} and ${counted(now.numFed - now.numPending, "mask")}.`,
    );
  else parts.push(`Cursor: ${took(now)}.`);
  if (block && block.now) {
    const b = block.now;
    if (block.isOver) parts.push(`Block cache: done in ${runs[1].forwards.length} forwards.`);
    else if (b.isCommit)
      parts.push(
        `Block cache: this forward only commits ${b.index ? `the ${b.numFed} tokens of the full block` : "the prompt's last token"}, and predicts one.`,
      );
    else if (!block.isRead) parts.push(`Block cache: all ${b.numFed} slots of its block once more.`);
    else parts.push(`Block cache: ${took(b)}.`);
  }
  return parts.join(" ");
}

/** @param {SlotForward} f */
const took = (f) => {
  const k = f.accepted.length;
  const rest = f.predicted.length - k;
  const why = f.stop === "threshold" ? `; the next is below τ ${short(f.tau)}` : "";
  return `${k} of ${counted(k + rest, "proposal")} accepted${why}`;
};

/** @param {{ accepted: number[] }} given */
const leaving = ({ accepted }) => `${counted(accepted.length, "token")} ${accepted.length === 1 ? "leaves" : "leave"}`;

/**
 * What a lossless forward fed, found and put right.
 * @param {SlotMoment[]} states
 */
export function losslessWords([state]) {
  const { now } = state;
  if (!now) return "Nothing is fed yet.";
  const drafts = now.fed.filter((slot) => slot.kind === "draft").length;
  const masks = now.numFed - now.numPending;
  if (!state.isRead) {
    return `Forward ${now.index + 1} feeds ${drafts ? `${counted(drafts, "draft")} as real tokens, to be checked` : "no drafts"}, and ${counted(masks, "mask")} to draft on.`;
  }
  const agreed = now.predicted.filter((p) => p.fate === "agreed").length;
  if (now.stop === "mismatch") {
    return `AR agrees with ${agreed} of ${counted(drafts, "draft")} and would write something else next: its token takes the place ↺, all behind it is dropped. ${leaving(now)}.`;
  }
  const checked = drafts
    ? `AR agrees with ${drafts === 1 ? "the draft" : `all ${drafts} drafts`}`
    : "Nothing had to be checked";
  const more = now.drafted
    ? `; ${now.drafted === 1 ? "1 new draft waits" : `${now.drafted} new drafts wait`} for the next forward`
    : "";
  return `${checked}: ${leaving(now)}${more}.`;
}
