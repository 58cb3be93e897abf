// The panel "Against AR": the share of tokens that AR would have chosen too, the positions where it would not, and both
// texts aligned.

import { shown, visible } from "../core/bytes.js";
import { button, group, make, put } from "../core/dom.js";
import { divergence } from "../core/folds.js";
import { isVerified } from "../core/methods.js";
import { counted, figure, probability, whole } from "../core/words.js";
import { aligned } from "../folds/diff.js";
import { draftsJudged, judge } from "../folds/agreement.js";
import { shownKey, shownLanes, subject } from "./shown.js";

const LISTED = 200; // maximum number of entries in the list, which scrolls
const PAUSE = 500; // milliseconds between two alignments
const AROUND = 8; // tokens shown on each side of the first difference

const PARTS = ["own", "agreed", "differs", "open"];

export class AgainstArPanel {
  /** @type {string} */
  key;
  /** @type {string} */
  placed;
  /** @type {string} */
  listed;
  /** @type {[Lane | null, Lane | undefined]} */
  waiting;
  /** @type {number | null} */
  timer = null;
  /** @type {number | undefined} */
  alignedAt;

  static id = "against-ar";

  static title = "Against AR";

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.view = view;
    element.classList.add("rv-against");
    this.share = make("b", "rv-ag-share rv-num");
    this.headText = make("span");
    this.parts = Object.fromEntries(PARTS.map((name) => [name, make("i", `rv-ag-${name}`)]));
    this.bar = make("div", { class: "rv-ag-bar", role: "img" }, ...Object.values(this.parts));
    this.detail = make("p", "rv-ag-detail rv-num");
    this.list = make("ol", "rv-ag-list");
    this.listTitle = make("h4");
    this.place = make("div", "rv-ag-place");
    this.placeTitle = make("h4");
    this.diff = new DiffText(["MARS", "AR"]);
    const head = make("p", "rv-ag-head", this.share, this.headText);
    element.append(
      make("section", "rv-ag-left", head, this.bar, this.detail, this.listTitle, this.list),
      make("section", "rv-ag-right", this.placeTitle, this.place, this.diff.element),
    );
  }

  draw() {
    const key = shownKey(this.view);
    if (key === this.key) return;
    this.key = key;
    const [lane, other] = shownLanes(this.view);
    const sentence = nothing(lane);
    const comparable = sentence ? null : lane || null;
    this.drawMeter(comparable, other, sentence);
    this.drawPlace(comparable, other);
    this.later(comparable, other);
  }

  /**
   * Draws the share of tokens that AR would have chosen as a bar with its parts, and lists the tokens that AR would not
   * have chosen.
   * @param {Lane | null} lane
   * @param {Lane | undefined} other
   * @param {string} sentence
   */
  drawMeter(lane, other, sentence) {
    const result = lane ? judge(lane, other) : null;
    const isLossless = lane && lane.steps.every((step) => isVerified(step.settings));
    const hasMeter = Boolean(lane) && !isLossless && Boolean(result && (result.judged.length || result.source));
    this.bar.hidden = !hasMeter;
    this.share.hidden = !hasMeter;
    put(this.detail, "");
    if (!lane) {
      put(this.headText, sentence);
      return this.drawList("", []);
    }
    if (isLossless) {
      const drafts = draftsJudged(lane);
      const rejected = drafts.filter((draft) => !draft.agrees);
      put(this.headText, "Lossless: every token is AR's own choice, by construction.");
      put(
        this.detail,
        drafts.length
          ? `AR confirmed ${whole(drafts.length - rejected.length)} of ${counted(drafts.length, "verified draft")}.`
          : "",
      );
      return this.drawList(
        "Where AR corrected a draft",
        rejected.map(({ place, draft, token }) =>
          entryOf(lane, place, token, draft[0], { id: token.id, p: token.confidence }),
        ),
      );
    }
    if (!hasMeter || !result) {
      put(
        this.headText,
        "This trace does not contain AR's choices after the first token of each forward pass. Run the prompt again with plain AR next to it.",
      );
      return this.drawList("", []);
    }
    this.drawShare(result);
    const wrong = result.judged.filter(({ agrees }) => !agrees);
    return this.drawList(
      wrong.length ? "Where AR would have chosen another token" : "",
      wrong.map(({ place, token, ar }) => entryOf(lane, place, token, token.id, ar)),
    );
  }

  /** @param {Judged} result */
  drawShare({ own, judged, agreed, open, source }) {
    const known = own + judged.length;
    put(this.share, `${figure((100 * (own + agreed)) / known)} %`);
    put(this.headText, ` of ${counted(known, "compared token")} are what AR would have chosen after the same text.`);
    /** @type {Record<string, number>} */
    const numbers = { own, agreed, differs: judged.length - agreed, open };
    for (const name of PARTS) this.parts[name].style.flexGrow = String(numbers[name]);
    const parts = [
      `${whole(own)} AR's own (first of a pass)`,
      `${whole(agreed)} of ${whole(judged.length)} others agree`,
    ];
    if (open)
      parts.push(
        source === "lane"
          ? `${whole(open)} after the first difference cannot be compared`
          : `${whole(open)} not compared yet`,
      );
    put(this.detail, parts.join(" · "));
    this.bar.setAttribute("aria-label", this.detail.textContent);
  }

  /**
   * @param {string} title
   * @param {PlaceEntry[]} entries
   */
  drawList(title, entries) {
    put(this.listTitle, title && entries.length ? `${title} (${whole(entries.length)})` : "");
    const shownEntries = entries.slice(0, LISTED);
    const key = JSON.stringify(shownEntries);
    if (key === this.listed) return;
    this.listed = key;
    this.list.replaceChildren(...shownEntries.map((entry) => this.entry(entry)));
  }

  /** @param {PlaceEntry} given */
  entry({ place, step, mine, theirs, p }) {
    const parts = [
      make("span", "rv-ag-where", `token ${whole(place + 1)}`),
      make("code", "rv-ag-mine", mine),
      make("span", "rv-ag-word", "AR"),
      make("code", "rv-ag-theirs", theirs),
      make("span", "rv-ag-p", p !== null && Number.isFinite(p) ? probability(p) : ""),
    ];
    return make(
      "li",
      "",
      button("rv-num", parts, () => this.view.choose(subject(this.view), step)),
    );
  }

  /**
   * Draws the first difference between the two texts, with the text around it.
   * @param {Lane | null} lane
   * @param {Lane | undefined} other
   */
  drawPlace(lane, other) {
    const place = lane && other ? divergence(lane, other, 0) : -1;
    const both = lane && other ? [lane, other] : [];
    const [length, least] = [lane?.tokens.length || 0, Math.min(...both.map(({ tokens }) => tokens.length))];
    const key = place >= 0 ? `${place}:${least - place > AROUND}` : `${length}:${other?.tokens.length || 0}:${place}`;
    if (place >= 0 && this.placed === key) return;
    this.placed = key;
    put(this.placeTitle, lane && other ? placeText(lane, other, place) : "");
    this.place.replaceChildren(...(place < 0 ? [] : both.map((shownLane) => around(shownLane, place))));
  }

  /**
   * @param {Lane | null} lane
   * @param {Lane | undefined} other
   */
  later(lane, other) {
    this.waiting = [lane, other];
    if (this.timer) return;
    const delay =
      this.alignedAt === undefined || (lane && lane.end)
        ? 0
        : Math.max(0, PAUSE - (performance.now() - this.alignedAt));
    this.timer = setTimeout(() => {
      this.timer = null;
      this.alignedAt = performance.now();
      this.diff.draw(...this.waiting);
    }, delay);
  }
}

/** @param {Lane | undefined} lane */
function nothing(lane) {
  if (!lane || !lane.steps.length) return "Nothing has been decoded yet.";
  return lane.isAr ? "This run is plain AR. Run MARS to compare." : "";
}

/**
 * Returns an entry for the list of positions where AR would have chosen another token. mine: id of the lane's token or
 * draft. ar: AR's token and its confidence.
 * @param {Lane} lane
 * @param {number} place
 * @param {Token} token
 * @param {number} mine
 * @param {Verdict["ar"]} ar
 * @returns {PlaceEntry}
 */
const entryOf = (lane, place, { step }, mine, ar) => ({
  place,
  step: step.index,
  mine: lane.tokenName(mine),
  theirs: lane.tokenName(ar.id),
  p: ar.p,
});

/**
 * @param {Lane} lane
 * @param {Lane} other
 * @param {number} place
 */
function placeText(lane, other, place) {
  if (place >= 0) return `First difference at token ${whole(place + 1)}`;
  const shared = Math.min(lane.tokens.length, other.tokens.length);
  if (!shared) return "";
  return lane.end && other.end && lane.tokens.length === other.tokens.length
    ? "Same text, token for token"
    : `Same text in the first ${counted(shared, "token")}`;
}

/**
 * @param {Lane} lane
 * @param {number} place
 */
function around(lane, place) {
  const words = make(
    "span",
    "",
    make("code", "", (place > AROUND ? "…" : "") + lane.namesOf(Math.max(0, place - AROUND), place)),
    make("code", "rv-mark", lane.namesOf(place, place + 1)),
    make("code", "", lane.namesOf(place + 1, place + 1 + AROUND)),
  );
  return make("p", "", make("b", lane.isAr ? "rv-ag-ar" : "", lane.isAr ? "AR" : lane.facts.title), words);
}

const CONTEXT = 16; // tokens at each end of a collapsed part that stay visible
const FOLD = 48; // number of tokens above which a common part is collapsed

// Shows two texts merged into one, aligned token by token: common parts, and parts of one text only. Long common parts
// are collapsed. The owner of a part is shown by colour, underline and name.
class DiffText {
  /**
   * @param {[string, string]} names names of the first and the second text
   */
  constructor(names) {
    this.names = names;
    this.title = make("h4");
    this.text = group("rv-df-text", "Both texts aligned");
    this.element = make("div", "rv-df", this.title, this.text);
    this.unfolded = new Set();
  }

  /**
   * @param {Lane | null} lane
   * @param {Lane | undefined} other
   */
  draw(lane, other) {
    const segments = lane?.tokens.length && other?.tokens.length ? aligned(lane.ids, other.ids) : [];
    this.element.hidden = segments.every((segment) => segment.kind === "both");
    if (this.element.hidden || !lane || !other) return;
    markAhead(segments, lane, other);
    put(this.title, summary(segments, this.names));
    const top = this.text.scrollTop;
    this.text.replaceChildren(...segments.flatMap((segment) => this.nodes(segment, lane, other)));
    this.text.scrollTop = top;
  }

  /**
   * @param {Segment} segment
   * @param {Lane} lane
   * @param {Lane} other
   */
  nodes(segment, lane, other) {
    const { kind, a, b, num } = segment;
    if (kind === "both") return this.both(lane, a, num);
    const source = kind === "first" ? lane : other;
    const text = oneText(source, kind === "first" ? a : b, num);
    const word = this.names[kind === "first" ? 0 : 1];
    const owner = make("span", "rv-df-word", segment.isAhead ? `${word} is ahead` : word);
    return [make("span", segment.isAhead ? "rv-df-ahead" : `rv-df-${kind}`, owner, make("span", "", text))];
  }

  /**
   * @param {Lane} lane
   * @param {number} from
   * @param {number} num
   */
  both(lane, from, num) {
    /** @type {(start: number, end: number) => HTMLElement} */
    const text = (start, end) => make("span", "rv-df-both", shown(lane.tokens.slice(start, end).map(textOf).join("")));
    const end = from + num;
    if (num <= FOLD || this.unfolded.has(from)) return [text(from, end)];
    const head = from === 0 ? from : from + CONTEXT;
    const fold = button("rv-df-fold rv-num", `… ${counted(end - CONTEXT - head, "token")} in both …`, () => {
      this.unfolded.add(from);
      fold.replaceWith(text(head, end - CONTEXT));
    });
    return [...(head > from ? [text(from, head)] : []), fold, text(end - CONTEXT, end)];
  }
}

/** @param {Token} token */
const textOf = (token) => (token.isEnd ? " ■" : token.text);

/**
 * Returns a part of one text. White space and incomplete characters, which would be invisible, are replaced by signs.
 * @param {Lane} lane
 * @param {number} from
 * @param {number} num
 */
function oneText(lane, from, num) {
  const text = lane.tokens
    .slice(from, from + num)
    .map(textOf)
    .join("");
  if (!text) return lane.namesOf(from, from + num);
  return text.trim() ? shown(text) : visible(text);
}

/**
 * Marks segments at the end of one text as "ahead" while the other text is still being written: they are no differences
 * yet.
 * @param {Segment[]} segments
 * @param {Lane} lane
 * @param {Lane} other
 */
function markAhead(segments, lane, other) {
  for (const segment of segments.slice(segments.findLastIndex(({ kind }) => kind === "both") + 1)) {
    segment.isAhead = !(segment.kind === "first" ? other : lane).end;
  }
}

/**
 * @param {Segment[]} segments
 * @param {[string, string]} given
 */
function summary(segments, [first, second]) {
  /** @param {string} kind */
  const count = (kind) =>
    segments.filter((segment) => segment.kind === kind && !segment.isAhead).reduce((sum, { num }) => sum + num, 0);
  return `Aligned: ${counted(count("both"), "token")} in both, ${whole(count("first"))} only in ${first}, ${whole(count("second"))} only in ${second}`;
}
