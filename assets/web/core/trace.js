// Builds a lane from its trace lines: tokens, steps, changes of settings, times. Also cuts a lane after a number of
// steps. No DOM and no timers: all times come from the trace. Clocks and rates start after prefill; only the time to
// the first token includes prefill.

import { aloneText, bytesOf, incompleteTail, joinBytes, visible } from "./bytes.js";
import { FINAL, draftIds, takenAhead } from "./folds.js";
import { joinedLength } from "./graphemes.js";
import { nameOf } from "./methods.js";
import { METHODS, SETTINGS, SOURCE_LETTERS } from "./table.js";

const OPEN_PLACE = "\u2591"; // drawn for an open position in a block of block diffusion
// The settings that are drawn in the text when they change during a run: settings with a control that works during a
// run, and settings that act only on some methods.
const FOLLOWED = /** @type {(keyof Settings)[]} */ (Object.keys(SETTINGS)).filter(
  (name) => SETTINGS[name].isSteered || !SETTINGS[name].isCommon,
);

export class Lane {
  /**
   * Builds a lane from raw trace lines, the first of which is its header.
   * @param {string[]} lines @param {LaneHead} head
   */
  static of(lines, head) {
    const lane = new Lane(head);
    for (const line of lines) if (line.trim()) lane.push(JSON.parse(line), line);
    return lane;
  }

  /** @param {LaneHead} given */
  constructor({ lane, title }) {
    this.name = lane;
    this.title = title;
    /** @type {string[]} */
    this.lines = []; // as received
    /** @type {HeaderEvent | null} */
    this.header = null;
    /** @type {Settings | null} */
    this.settings = null;
    /** @type {Map<number, Uint8Array>} */
    this.vocabulary = new Map();
    /** @type {Token[]} */
    this.tokens = [];
    this.shortened = -1; // in a cut lane: index of the token with a shorter text than in the whole lane, or -1
    /** @type {Step[]} */
    this.steps = [];
    /** @type {Move[]} */
    this.moves = [];
    /** @type {number | null} */
    this.prefill = null;
    this.reused = 0; // prompt tokens found in the KV cache
    this.seconds = 0;
    /** @type {[kept: number, end: number] | null} */
    this.loop = null; // number of tokens before the text repeats itself, and number by which that was detected
    /** @type {End | null} */
    this.end = null;
    /** @type {boolean | null} */
    this.verdict = null;
    this.given = ""; // beginning of the output that was given in the request, not generated
    this.decoder = new TextDecoder("utf-8");
    this.tail = new Uint8Array(0);
    /** @type {Lane | null} */
    this.cut = null;
    /** @type {Lane | null} */
    this.whole = null; // in a cut lane: the lane from which it was cut
  }

  /** @param {TraceEvent} event @param {string} line */
  push(event, line) {
    if (event.type === "header") this.readHeader(event);
    else if (event.type === "prefill") this.readPrefill(event);
    else if (event.type === "step") this.readStep(event);
    else if (event.type === "end") this.readEnd(event);
    else throw new Error(`A trace line has the unknown type ${String(/** @type {{ type: unknown }} */ (event).type)}.`);
    // A line that is a slice of the received value would keep the whole value in memory. Adding and removing a space
    // creates an independent string.
    this.lines.push(` ${line}`.slice(1));
  }

  /** @param {HeaderEvent} header */
  readHeader(header) {
    this.header = header;
    this.settings = this.header.settings || null;
    this.learn(header.vocabulary);
    this.given = this.givenIds()
      .map((id) => this.decode(id))
      .join("");
  }

  // The text of the last of the given tokens with which a branch's answer begins. Empty if there are none or `given`
  // does not end with this text.
  lastGiven() {
    const last = this.givenIds().at(-1);
    const text = last === undefined ? "" : aloneText(this.bytes(last));
    return this.given.endsWith(text) ? text : "";
  }

  // The ids of the given output tokens, from which a branch continues.
  givenIds() {
    const ids = this.header?.prompt_ids || [];
    return ids.slice(ids.length - (this.header?.num_given || 0));
  }

  /** Decodes one more token. Returns the text that its bytes complete. @param {number} id */
  decode(id) {
    const bytes = this.bytes(id);
    this.tail = incompleteTail(joinBytes(this.tail, bytes));
    return this.decoder.decode(bytes, { stream: true });
  }

  /** @param {PrefillEvent} event */
  readPrefill(event) {
    this.prefill = (this.prefill || 0) + event.seconds;
    this.reused += event.num_reused || 0;
  }

  /** @param {StepEvent} event */
  readStep(event) {
    this.learn(event.vocabulary);
    this.seconds += event.seconds;
    const row = event.rows.find((r) => r.row === 0) || event.rows[0];
    if (!row) return;
    const before = this.settings;
    if (row.settings) this.settings = /** @type {Settings} */ ({ ...before, ...row.settings });
    const index = this.steps.length;
    /** @type {Step} */
    const step = {
      index,
      first: this.tokens.length,
      count: row.accepted.length,
      proposals: row.proposals,
      drafted: row.num_drafted || 0,
      settings: /** @type {Settings} */ (this.settings), // from the header, which comes first
      blockSize: row.block_size || 0,
      stop: row.stop,
      seconds: event.seconds,
      clock: this.seconds,
      cursor: row.cursor,
      pending: row.num_pending,
      fed: row.num_fed,
      groups: row.groups || [], // number of masks after each of the last pending tokens; empty if only the last had masks
      lookedUp: row.looked_up || [], // drafts of prompt lookup that wait for verification
      guessed: row.guessed || [], // drafts after lookedUp: of a draft model, or guesses of Jacobi decoding
      draftForwards: row.num_draft_forwards || 0,
      declined: row.declined || null, // tokens per pass and relative cost of a pass with masks, if automatic B fed none
      taken: row.taken || null, // positions, relative to `first`, that a pass of block diffusion filled
      tau: row.threshold ?? this.settings?.tau ?? NaN, // the threshold in force; if τ adapts, settings.tau is its lower bound
      sources: sourcesOf(row),
      spread: row.spread ?? NaN,
    };
    this.loop ??= row.loop ?? null;
    this.steps.push(step);
    this.readChecks(row.checks || []);
    if (before && FOLLOWED.some((k) => before[k] !== step.settings[k])) this.readMove(step, before);
    row.accepted.forEach((id, position) => this.readToken(step, id, position, row.accepted.length));
  }

  /**
   * Stores the tokens that AR would have chosen at the latest positions. A pass reports them for the tokens in its
   * input.
   * @param {[id: number, p: number][]} checks
   */
  readChecks(checks) {
    const first = this.tokens.length - checks.length;
    checks.forEach(([id, p], i) => {
      this.tokens[first + i].check = { id, p };
    });
  }

  /** @param {Step} step @param {number} id @param {number} position @param {number} count */
  readToken(step, id, position, count) {
    const isEnd = step.stop === "eos" && position === count - 1;
    const proposal = step.proposals[position];
    const text = isEnd ? "" : this.decode(id);
    const joins = this.tokens.findLastIndex((other) => other.text);
    const last = this.tokens[joins];
    const joined = last && text ? text.slice(0, joinedLength(last.text, text)) : "";
    if (joined) last.text += joined; // both are drawn together
    this.tokens.push({
      id,
      text: text.slice(joined.length),
      step,
      position,
      isEnd,
      joins: joined ? joins : -1,
      joined,
      confidence: proposal ? proposal[1] : null,
    });
  }

  /**
   * Records a change of settings during the run (a move). Changes in consecutive steps, as from dragging a slider, are
   * recorded as one move.
   * @param {Step} step @param {Settings} before
   */
  readMove(step, before) {
    const last = this.moves[this.moves.length - 1];
    if (last && last.until === step.index - 1) {
      last.until = step.index;
      last.settings = step.settings;
      return;
    }
    this.moves.push({ step: step.index, until: step.index, token: step.first, settings: step.settings, before });
  }

  /** @param {EndEvent} event */
  readEnd(event) {
    this.end = { reason: event.reason, message: event.message || "" };
    const incomplete = this.decoder.decode();
    const last = this.tokens.findLast((token) => !token.isEnd);
    if (incomplete && last) last.rest = incomplete;
  }

  /** @param {Vocabulary | undefined} vocabulary */
  learn(vocabulary) {
    for (const [id, text] of Object.entries(vocabulary || {})) this.vocabulary.set(Number(id), bytesOf(text));
  }

  /** @param {number} id */
  bytes(id) {
    return this.vocabulary.get(id) || bytesOf("");
  }

  /** @param {number} id */
  tokenName(id) {
    const bytes = this.vocabulary.get(id);
    return bytes ? visible(aloneText(bytes)) : `#${id}`;
  }

  // The ids of the generated tokens.
  get ids() {
    return this.tokens.map(({ id }) => id);
  }

  // Returns the unused proposals of the latest step as text that continues the tokens: the drafts, and after them the
  // rejected proposals. Returns null if the lane has ended or has no step.
  ghosts() {
    const step = this.steps[this.steps.length - 1];
    if (!step || this.end || FINAL.has(step.stop)) return null;
    const decoder = new TextDecoder("utf-8");
    decoder.decode(this.tail, { stream: true });
    /** @param {number[]} ids */
    const read = (ids) => ids.map((id) => decoder.decode(this.bytes(id), { stream: true })).join("");
    if (step.taken) {
      const ahead = takenAhead(this).map((id) => (id === null ? OPEN_PLACE : read([id])));
      return { drafts: ahead.join(""), refused: "" };
    }
    const refused =
      step.lookedUp.length || step.guessed.length
        ? []
        : step.proposals.slice(step.count + step.drafted).map(([id]) => id);
    return { drafts: read(draftIds(step)), refused: read(refused) };
  }

  /** @param {number} num @returns {Lane} */
  at(num) {
    if (num >= this.steps.length) return this;
    if (!this.cut || this.cut.steps.length !== num) {
      this.cut = Object.assign(Object.create(Lane.prototype), cutOf(this, num), { whole: this.whole ?? this });
    }
    return /** @type {Lane} */ (this.cut);
  }

  // The lane's method: from its settings or, until its header arrives, from the lane's name.
  get method() {
    if (this.settings) return nameOf(this.settings);
    return this.name in METHODS ? this.name : "mars";
  }

  get facts() {
    return METHODS[this.method] ?? METHODS.mars;
  }

  get isAr() {
    return this.facts.isReference;
  }
}

/**
 * Returns the source of each accepted token. If a line has no sources, all of its tokens are AR's own.
 * @param {RowStep} row
 */
const sourcesOf = ({ accepted, sources }) => accepted.map((_, i) => SOURCE_LETTERS[sources?.[i] ?? "a"]);

/** Returns the fields of a lane as they were after its first `num` steps. @param {Lane} lane @param {number} num */
function cutOf(lane, num) {
  const steps = lane.steps.slice(0, num);
  const last = steps[num - 1];
  const tokens = lane.tokens.slice(0, last ? last.first + last.count : 0);
  if (last) for (let i = last.first; i < tokens.length; i += 1) tokens[i] = { ...tokens[i], check: undefined }; // arrives with the next step
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
 * Removes the characters that later tokens appended to the last token with text. Returns that token's index, or -1.
 * @param {Lane} lane @param {Token[]} tokens
 */
function unjoin(lane, tokens) {
  let [index, length] = [-1, 0];
  for (const { joins, joined, text } of lane.tokens.slice(tokens.length)) {
    if (joins >= 0 && joins < tokens.length) [index, length] = [joins, length + joined.length];
    if (text) break;
  }
  if (index >= 0) tokens[index] = { ...tokens[index], text: tokens[index].text.slice(0, -length) };
  return index;
}

/**
 * Returns the bytes of the incomplete character at the end of these tokens; empty if there is none.
 * @param {Lane} lane @param {Token[]} tokens
 */
function tailOf(lane, tokens) {
  const generated = tokens.slice(-4).filter((token) => !token.isEnd);
  const ids = [...lane.givenIds(), ...generated.map((token) => token.id)].slice(-4);
  return incompleteTail(
    ids.map((id) => lane.bytes(id)).reduce((all, bytes) => joinBytes(all, bytes), new Uint8Array(0)),
  );
}
