// Tokens per forward by kind of text. Pure; knows tokens as text and forwards as counts, no DOM.
//
// The rule, in this order. code: any character between ``` fences, or in a Python block: a line that
// begins with `def name...:` or `class Name...:` and the indented or empty lines after it.
// white space: nothing else in the token. words: it has a letter. numbers: it has a digit.
// punctuation: what is left, signs and emoji included. A piece of a character is of the kind of
// that character; the mark that ends the text is of none.

const KINDS = ["words", "numbers", "punctuation", "code", "white space"];

const HEAD = /^(?:def|class) \w+.*:\s*$/;
const INSIDE = /^(?:[ \t]|@|$)/;

/**
 * Where code begins and ends in a text: [from, to) in order, fences before blocks.
 * @param {string} text
 */
export function codeRanges(text) {
  const marks = [...text.matchAll(/```/g)].map((found) => found.index);
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
  if (!text.trim()) return "white space";
  if (/\p{L}/u.test(text)) return "words";
  return /\p{N}/u.test(text) ? "numbers" : "punctuation";
}

/**
 * The kind of each token of a lane, in order; null for the mark that ends the text.
 * @param {KindToken[]} tokens
 */
export function kindsOf(tokens) {
  const ranges = codeRanges(tokens.map((token) => token.text).join(""));
  /** @type {(string | null)[]} */
  const kinds = new Array(tokens.length).fill(null);
  let [at, first] = [0, 0]; // first: of the pieces that wait for their character
  tokens.forEach((token, i) => {
    const end = at + token.text.length;
    if (token.joins >= 0) kinds[i] = kinds[token.joins];
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
 * A token carries 1/n of a forward that took n tokens, so the shares of all kinds add up to the forwards.
 * @param {KindToken[]} tokens
 */
export function byKind(tokens) {
  const found = new Map(KINDS.map((kind) => [kind, { kind, tokens: 0, forwards: 0 }]));
  kindsOf(tokens).forEach((kind, i) => {
    const entry = kind && found.get(kind);
    if (!entry) return;
    entry.tokens += 1;
    entry.forwards += 1 / tokens[i].step.count;
  });
  return [...found.values()].map((entry) => ({ ...entry, tpf: entry.tokens / entry.forwards }));
}
