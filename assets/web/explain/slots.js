// A recorded run as cache slots: what each forward fed, what it predicted and what became of that. What a slot is and
// what becomes of a proposal is told by folds/; here it is put in the terms of the pictures. No DOM.
// Places count from the end of the prompt: -1 is its last token, 0 the first token of the output.

import { draftIds, lastOf } from "../core/folds.js";
import { Lane } from "../core/trace.js";
import { proposalRows } from "../folds/proposals.js";
import { promptTokens, slotsAt } from "../folds/slots.js";

// agreed: a draft that AR confirms; replaced: AR's token where a draft was wrong; accepted: emitted now;
// draft: to be verified by the next forward; refused: below the threshold; dropped: behind a wrong draft.
/** @type {Record<string, string>} */
const FATES = {
  own: "accepted",
  taken: "accepted",
  confirmed: "agreed",
  replaced: "replaced",
  drafted: "draft",
  dropped: "dropped",
  refused: "refused",
  unseen: "refused",
  outbid: "refused",
  past: "refused",
};

/**
 * lines: a trace's, header first.
 * @param {string} title
 * @param {string[]} lines
 */
export function slotRun(title, lines) {
  const lane = Lane.of(lines, { lane: "recorded", title });
  const forwards = lane.steps.map((step) => readForward(lane, step));
  return { title, lane, forwards, emitted: lane.tokens.map((token) => token.id) };
}

/**
 * @param {Lane} lane
 * @param {Step} step
 */
function readForward(lane, step) {
  const prompt = promptTokens(lane);
  // Of several groups of masks the last is drawn, for it alone stands behind all that was fed.
  const numDrawn = step.groups.length ? step.pending + lastOf(step.groups) : step.fed;
  const fed = slotsAt(lane, step.index, 0)
    .slice(0, numDrawn)
    .map(({ slot, state, id }) => ({ place: slot - prompt, kind: state, id }));
  const predicted = proposalRows(lane, step.index).map((row) => ({ ...row, fate: FATES[row.fate] }));
  return {
    index: step.index,
    first: step.cursor - prompt,
    start: step.first,
    numPending: step.pending,
    numFed: step.fed,
    fed,
    predicted,
    accepted: lane.tokens.slice(step.first, step.first + step.count).map((token) => token.id),
    drafted: draftIds(step).length,
    stop: step.stop,
    isCommit: step.isCommit,
    seconds: step.seconds,
    tau: step.settings.tau,
    isLossless: step.settings.lossless,
  };
}

/**
 * What is known of a run after its first `count` forwards, the next one fed but not read when `isFed`.
 * @param {SlotRun} run
 * @param {number} count
 * @param {boolean} isFed
 */
export function momentOf(run, count, isFed) {
  const before = run.forwards[Math.min(count, run.forwards.length) - 1];
  const tokens = before ? before.start + before.accepted.length : 0;
  const fed = run.forwards.slice(0, count).reduce((sum, f) => sum + f.numFed, 0);
  const next = isFed ? run.forwards[count] : undefined;
  return {
    now: next || before,
    isRead: !next,
    tokens,
    fed: fed + (next ? next.numFed : 0),
    forwards: Math.min(count, run.forwards.length),
    isOver: count >= run.forwards.length,
  };
}
