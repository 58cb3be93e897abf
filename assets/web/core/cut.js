// A lane as it was after some of its steps. No DOM.

import { incompleteTail, joinBytes } from "./bytes.js";

/**
 * What a lane held after its first `num` steps.
 * @param {Lane} lane
 * @param {number} num
 */
export function cutOf(lane, num) {
  const steps = lane.steps.slice(0, num);
  const last = steps[num - 1];
  const tokens = lane.tokens.slice(0, last ? last.first + last.count : 0);
  if (last) for (let i = last.first; i < tokens.length; i += 1) tokens[i] = { ...tokens[i], check: undefined }; // known a forward later
  const shortened = unjoin(lane, tokens);
  const moves = lane.moves
    .filter((move) => move.step < num)
    .map((move) => (move.until < num ? move : { ...move, until: num - 1, settings: last.settings }));
  const { name, title, header, given, vocabulary, lines, prefill, reused } = lane;
  const settings = last ? last.settings : header && header.settings;
  const state = { settings, seconds: last ? last.clock : 0, tail: tailOf(lane, tokens), end: null, verdict: null };
  return { name, title, header, given, vocabulary, lines, prefill, reused, steps, tokens, moves, shortened, ...state };
}

/**
 * Takes from the last token that has text what later tokens joined to it; its place, or -1.
 * @param {Lane} lane
 * @param {Token[]} tokens
 */
function unjoin(lane, tokens) {
  let [place, length] = [-1, 0];
  for (let i = tokens.length; i < lane.tokens.length && !lane.tokens[i].text; i += 1) {
    const { joins, joined } = lane.tokens[i];
    if (joins >= 0 && joins < tokens.length) [place, length] = [joins, length + joined.length];
  }
  if (place >= 0) tokens[place] = { ...tokens[place], text: tokens[place].text.slice(0, -length) };
  return place;
}

/**
 * The bytes of a character that the last of these tokens left incomplete.
 * @param {Lane} lane
 * @param {Token[]} tokens
 */
function tailOf(lane, tokens) {
  const own = tokens.slice(-4).filter((token) => !token.isEnd);
  const ids = [...lane.givenIds(), ...own.map((token) => token.id)].slice(-4);
  return incompleteTail(
    ids.map((id) => lane.bytes(id)).reduce((all, bytes) => joinBytes(all, bytes), new Uint8Array(0)),
  );
}
