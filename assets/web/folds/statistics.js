// Statistics of a run's passes: agreement with plain AR, acceptance by position, tokens per pass, and tokens per pass
// by kind of text. Pure; no DOM.

import { divergence } from "../core/folds.js";
import { isVerified } from "../core/methods.js";

const EDGES = [0, 0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 0.99, 1]; // edges of the confidence bins

/**
 * Returns how far a lane agrees with plain AR: whether AR would have chosen each token, given the same text before it.
 * The first token of a pass is AR's own choice by construction, as is every token of AR and of a lossless run. The
 * other tokens are judged by the next pass (`token.check`) or, if the trace has no checks, by the AR lane up to the
 * first difference. own: number of tokens that are AR's by construction. judged: other tokens with a known result.
 * open: number of tokens with no known result (yet). agreed: number of judged tokens that agree. source: "checks",
 * "lane" or "".
 * @param {Lane} lane
 * @param {Lane | null | undefined} other
 */
export function judge(lane, other) {
  /** @param {Token} token */
  const isChecked = (token) => token.check && token.step.index < lane.steps.length - 1; // checked by the next pass
  const hasChecks = lane.tokens.some(isChecked);
  const source = hasChecks ? "checks" : other && other.tokens.length ? "lane" : "";
  const end = source === "lane" && other ? comparable(lane, other) : 0;
  /** @type {Verdict[]} */
  const judged = [];
  let [own, open] = [0, 0];
  lane.tokens.forEach((token, place) => {
    if (token.position === 0 || isVerified(token.step.settings)) own += 1;
    else if (token.check && isChecked(token))
      judged.push({ place, token, ar: token.check, agrees: token.check.id === token.id });
    else if (other && place < end) judged.push({ place, token, ...comparedWith(token, other.tokens[place]) });
    else open += 1;
  });
  return { own, judged, open, agreed: judged.filter(({ agrees }) => agrees).length, source };
}

/**
 * @param {Token} token
 * @param {Token} choice
 */
const comparedWith = (token, choice) => ({
  ar: { id: choice.id, p: choice.confidence },
  agrees: choice.id === token.id,
});

/**
 * Returns how many positions of two lanes can be compared: those up to and including the first difference, because
 * later tokens follow different texts.
 * @param {Lane} lane
 * @param {Lane} other
 */
function comparable(lane, other) {
  const place = divergence(lane, other, 0);
  return place < 0 ? Math.min(lane.tokens.length, other.tokens.length) : place + 1;
}

/**
 * Returns the verified drafts of a lossless run with their results. In each pass, drafts after the first one that AR
 * did not confirm are left out.
 * @param {Lane} lane
 */
export function draftsJudged(lane) {
  /** @type {{ place: number, draft: Proposal, token: Token, confidence: number, agrees: boolean }[]} */
  const results = [];
  lane.steps.forEach((step, i) => {
    const next = lane.steps[i + 1];
    if (!step.drafted || !next || !isVerified(next.settings)) return;
    for (let j = 0; j < Math.min(step.drafted, next.count); j += 1) {
      const draft = step.proposals[step.count + j];
      const token = lane.tokens[next.first + j];
      const agrees = draft[0] === token.id;
      results.push({ place: next.first + j, draft, token, confidence: draft[1], agrees });
      if (!agrees) break;
    }
  });
  return results;
}

/**
 * Sorts judged tokens into bins of confidence. For each bin: num: number of tokens. agreed: number that agree with AR.
 * share: agreed / num. mean: mean confidence.
 * @param {{ confidence: number, agrees: boolean }[]} pairs
 */
export function calibration(pairs) {
  const bins = EDGES.slice(1).map((high, i) => ({ low: EDGES[i], high, num: 0, agreed: 0, sum: 0 }));
  for (const { confidence, agrees } of pairs) {
    const index = EDGES.findLastIndex((edge) => confidence >= edge);
    const bin = bins[Math.min(Math.max(index, 0), bins.length - 1)];
    bin.num += 1;
    bin.sum += confidence;
    if (agrees) bin.agreed += 1;
  }
  return bins.map(({ sum, ...bin }) => ({ ...bin, share: bin.agreed / bin.num, mean: sum / bin.num }));
}

/**
 * Returns, for each position in a pass, the number of passes that proposed a token there (proposed) and the number that
 * emitted it (emitted).
 * @param {Pick<Step, "proposals" | "count">[]} steps
 */
export function acceptance(steps) {
  const positions = [];
  for (const { proposals, count } of steps) {
    while (positions.length < proposals.length) positions.push({ proposed: 0, emitted: 0 });
    for (let i = 0; i < proposals.length; i += 1) {
      positions[i].proposed += 1;
      if (i < count) positions[i].emitted += 1;
    }
  }
  return positions.map(({ proposed, emitted }, i) => ({
    position: i + 1,
    proposed,
    emitted,
    share: emitted / proposed,
  }));
}

/**
 * Returns the number of passes that accepted 1, 2, 3 ... tokens, up to the maximum.
 * @param {Pick<Step, "proposals" | "count">[]} steps
 */
export function forwardCounts(steps) {
  const counts = [];
  for (const { count } of steps) {
    while (counts.length < count) counts.push({ count: counts.length + 1, forwards: 0 });
    if (count > 0) counts[count - 1].forwards += 1;
  }
  return counts;
}

// Kinds of text. The first rule that applies to a token decides. code: the token is between ``` fences or in a Python
// block (a line `def name...:` or `class Name...:` with the indented or empty lines after it). whitespace: the token is
// only whitespace. words: it contains a letter. numbers: it contains a digit. punctuation: all other tokens, including
// signs and emoji. A token that contains only a part of a character has the kind of that character. EOS has a separate
// kind.
const END = "end token"; // EOS
const KINDS = ["words", "numbers", "punctuation", "code", "whitespace", END];

const HEAD = /^(?:def|class) \w+.*:\s*$/;
const INSIDE = /^(?:[ \t]|@|$)/;

/**
 * Returns the ranges [from, to) of code in a text: first the fenced ones in order, then the Python blocks in order.
 * @param {string} text
 */
export function codeRanges(text) {
  const marks = [...text.matchAll(/```/g)].map((match) => match.index);
  /** @type {[from: number, to: number][]} */
  const ranges = [];
  for (let i = 0; i < marks.length; i += 2)
    ranges.push([marks[i], i + 1 < marks.length ? marks[i + 1] + 3 : text.length]);
  /** @param {number} at */
  const isFenced = (at) => ranges.some(([from, to]) => at >= from && at < to);
  /** @type {[from: number, to: number][]} */
  const blocks = [];
  let at = 0;
  /** @type {[from: number, to: number] | null} */
  let block = null;
  for (const line of text.split("\n")) {
    const isHead = HEAD.test(line) && !isFenced(at);
    if (isHead && !block) blocks.push((block = [at, at + line.length]));
    else if (block && (isHead || INSIDE.test(line))) block[1] = line.trim() ? at + line.length : block[1];
    else block = null;
    at += line.length + 1;
  }
  return [...ranges, ...blocks];
}

/** @param {string} text */
function plainKind(text) {
  if (!text.trim()) return "whitespace";
  if (/\p{L}/u.test(text)) return "words";
  return /\p{N}/u.test(text) ? "numbers" : "punctuation";
}

/**
 * Returns the kind of each token of a lane, in order. Parts of a character that stays incomplete are punctuation.
 * @param {KindToken[]} tokens
 */
export function kindsOf(tokens) {
  const ranges = codeRanges(tokens.map((token) => token.text).join(""));
  /** @type {string[]} */
  const kinds = new Array(tokens.length).fill("punctuation");
  let [at, first] = [0, 0]; // first: index of the first token with an incomplete character
  tokens.forEach((token, i) => {
    const end = at + token.text.length;
    if (token.isEnd) kinds[i] = END;
    else if (token.joins >= 0) kinds[i] = kinds[token.joins];
    else if (token.text) {
      const isCode = ranges.some(([from, to]) => at < to && end > from);
      kinds.fill(isCode ? "code" : plainKind(token.text), first, i + 1);
    }
    if (token.text || token.isEnd || token.joins >= 0) first = i + 1;
    at = end;
  });
  return kinds;
}

/**
 * Returns tokens, passes and tokens per pass by kind of text. A token counts as 1/n of a pass that accepted n tokens,
 * so the passes of all kinds add up to the number of passes.
 * @param {KindToken[]} tokens
 */
export function byKind(tokens) {
  const counts = new Map(KINDS.map((kind) => [kind, { kind, tokens: 0, forwards: 0 }]));
  kindsOf(tokens).forEach((kind, i) => {
    const entry = /** @type {{ kind: string, tokens: number, forwards: number }} */ (counts.get(kind));
    entry.tokens += 1;
    entry.forwards += 1 / tokens[i].step.count;
  });
  return [...counts.values()].map((entry) => ({ ...entry, tpf: entry.tokens / entry.forwards }));
}
