// What a recorded lossless pass did, row by row: what it was fed at a position, what it predicted there, and what became
// of the prediction. Pure; no DOM.

import { draftIds } from "../core/folds.js";
import { acceptPrefix } from "../folds/whatif.js";

/** @param {Lane} lane */
export const repairs = ({ steps }) => steps.flatMap(({ stop, index }) => (stop === "mismatch" ? [index] : []));

/** @param {Lane} lane @param {number} index */
const draftsOf = ({ steps }, index) => (index ? draftIds(steps[index - 1]) : []);

/**
 * Returns all rows of a pass: its real tokens, which verify the drafts, then its masks.
 * @param {Lane} lane @param {number} index @returns {Rung[]}
 */
export function ladder(lane, index) {
  const { proposals, first, count, drafted, stop } = lane.steps[index];
  const before = first ? lane.tokenName(lane.tokens[first - 1].id) : "prompt";
  const fed = [before, ...draftsOf(lane, index).map((id) => lane.tokenName(id))];
  return proposals.map(([id, p], i) => {
    const isVerified = i + 1 < fed.length;
    const [kind, fate] =
      i < count - 1 || (i < count && isVerified && stop !== "mismatch")
        ? ["kept", "confirmed"]
        : i < count
          ? ["ar", "AR’s token"]
          : i < count + drafted
            ? ["draft", "next draft"]
            : ["dropped", "dropped"];
    return { fed: fed[i] ?? "mask", isMask: i >= fed.length, name: lane.tokenName(id), p, kind, fate };
  });
}

/**
 * Returns the rows of AR's next token and of the masks, with what would be accepted at a threshold, and the number of
 * them. wrong: the first accepted token that the verified text does not have; meant: the text's token there.
 * @param {Lane} lane @param {number} index @param {number} tau
 */
export function dial(lane, index, tau) {
  const { first, count } = lane.steps[index];
  const rows = ladder(lane, index).slice(count - 1);
  const written = lane.tokens.slice(first + count - 1).map(({ id }) => lane.tokenName(id));
  const wrong = rows.findIndex(({ name }, i) => i < written.length && name !== written[i]);
  const num = acceptPrefix(
    rows.map(({ p }) => p),
    tau,
  );
  /** @type {(i: number) => [kind: string, fate: string]} */
  const at = (i) => {
    if (i > num) return ["dropped", "after it"];
    if (i === num) return ["dropped", "below τ"];
    if (i === wrong) return ["wrong", "mistake"];
    return ["kept", i ? "accepted" : "always"];
  };
  const rungs = rows.map((row, i) => ({ ...row, kind: at(i)[0], fate: at(i)[1] }));
  return { num, wrong: wrong >= 0 && wrong < num ? wrong : -1, meant: written[wrong] ?? "", rungs };
}

/**
 * Returns the drafts that a pass verified, each with AR's token at its place.
 * @param {Lane} lane @param {number} index @returns {Rung[]}
 */
export function repair(lane, index) {
  const { count } = lane.steps[index];
  const rows = ladder(lane, index);
  return draftsOf(lane, index).map((id, i) => {
    const [kind, fate] =
      i < count - 1 ? ["kept", "confirmed"] : i === count - 1 ? ["wrong", "replaced"] : ["dropped", "dropped"];
    return { ...rows[i], fed: lane.tokenName(id), isMask: false, kind, fate };
  });
}
