// The stability view: answers to one prompt with different seeds, drawn as a tree of the text that they share.

import { shown } from "../../core/bytes.js";
import { button, find, make, put } from "../../core/dom.js";
import { PhaseView, mountOf } from "../../core/line_view.js";
import { Lane } from "../../core/trace.js";
import { valueOf } from "../../core/wire.js";
import { counted, environment, joined, short, whole } from "../../core/words.js";
import { isDone } from "../../folds/grid.js";
import { leavesOf, stabilityFinding, treeOf } from "../../folds/stability.js";
import { Asked, onceText } from "../../text/asked.js";

class StabilityView extends PhaseView {
  static what = "This result";
  static empty =
    "Press Run to answer the prompt with several seeds and see where the answers diverge. At temperature 0 all of them should be identical.";

  /** @type {StabilityHead} */
  head;
  /** @type {Map<string, Lane>} */
  lanes;
  /** @type {string} */
  drawn;

  /** @param {ConstructorParameters<typeof PhaseView>} given */
  constructor(...given) {
    super(...given);
    this.asked = new Asked(find(this.root, ".rv-asked"));
    this.tree = find(this.root, ".sv-tree");
    this.env = find(this.root, ".sv-env");
    this.clear();
  }

  clear() {
    this.start({ run: "", prompt: "", lane: "mars", method: "", temperature: 0, seeds: [] });
    this.showOpening();
  }

  /** @param {StabilityHead} head */
  start(head) {
    this.head = head;
    this.lanes = new Map(head.seeds.map((seed) => [`s${seed}`, new Lane({ lane: head.lane, title: head.method })]));
    this.drawn = "";
    this.begin(head);
    this.schedule();
  }

  /**
   * @param {string} target
   * @param {any} data
   * @param {string} text
   */
  line(target, data, text) {
    const lane = this.lanes.get(target);
    if (target === "status") this.say(data);
    else if (lane) lane.push(data, text);
    else throw new Error(`The result has no answer ${target}.`);
  }

  draw() {
    const { head, root } = this;
    const done = head.seeds.flatMap((seed) => {
      const lane = /** @type {Lane} */ (this.lanes.get(`s${seed}`));
      return isDone(lane) ? [{ seed, lane }] : [];
    });
    const header = done[0]?.lane.header;
    root.dataset.run = String(head.run);
    this.asked.draw(head.seeds.length ? head.prompt : null, settingsText(head, header), this.wanted);
    const state = `${head.run} ${done.length}`;
    if (state === this.drawn) return;
    this.drawn = state;
    const tree = treeOf(done.map(({ lane }) => lane.ids));
    const num = leavesOf(tree).length;
    Object.assign(root.dataset, { answers: done.length, distinct: done.length ? num : 0, common: tree.to });
    this.showFinding(stabilityFinding(tree));
    put(this.env, environment(header));
    this.tree.replaceChildren(...(done.length ? [make("ul", "", this.nodeOf(tree, done))] : []));
    if (this.isOver && !this.feed.recorded) put(this.live, `${this.status.textContent} ${this.finding.textContent}`);
  }

  get heading() {
    const { seeds } = this.head;
    return seeds.length ? `${whole(seeds.length)} answers to one prompt` : "";
  }

  /**
   * @param {AnswerNode} node
   * @param {Answer[]} answers
   * @param {boolean} [isRoot]
   * @returns {HTMLElement}
   */
  nodeOf(node, answers, isRoot = true) {
    const { from, to, members, children } = node;
    const { lane } = answers[members[0]];
    const seeds = members.map((i) => answers[i].seed).join(", ");
    const share = make("span", { class: "sv-share", "aria-hidden": "true" }, make("i"));
    /** @type {HTMLElement} */ (share.firstChild).style.width = `${(100 * members.length) / answers.length}%`;
    const head = make(
      "p",
      "sv-head rv-num",
      share,
      make("b", "", `${whole(members.length)} of ${whole(answers.length)}`),
      make("span", "", `${members.length === 1 ? "seed" : "seeds"} ${seeds}`),
      make("span", "", placesText(from, to)),
    );
    if (!children.length) head.append(button("sv-open", "Open in Live", () => this.open(answers[members[0]])));
    const inner = children.map((child) => this.nodeOf(child, answers, false));
    const attributes = { class: "sv-node", "data-members": members.length };
    return make(
      "li",
      attributes,
      head,
      textOf(lane, node, isRoot),
      ...(inner.length ? [make("ul", "", ...inner)] : []),
    );
  }

  /**
   * Shows an answer in the Live tab, with all its panels.
   * @param {Answer} answer
   */
  open({ seed, lane }) {
    const { run } = this.head;
    const { recorded } = this.feed;
    const lanes = [{ lane: lane.name, title: lane.title }];
    const value = valueOf({ run: `${run}/s${seed}`, lanes, pace: 0, ...(recorded ? { recorded } : {}) }, [lane]);
    this.root.dispatchEvent(new CustomEvent("mars-ask", { bubbles: true, detail: { kind: "replay", value } }));
  }
}

export const mountStabilityView = mountOf(StabilityView);

/**
 * @param {StabilityHead} head
 * @param {HeaderEvent | null | undefined} header
 */
function settingsText({ method, temperature, seeds }, header) {
  const limit = header ? onceText({ ...header.settings, temperature: 0 }) : "";
  return joined(method, `temperature ${short(temperature)}`, counted(seeds.length, "seed"), limit);
}

/**
 * @param {number} from
 * @param {number} to exclusive
 */
function placesText(from, to) {
  if (to <= from) return "";
  return to - from === 1 ? `token ${whole(to)}` : `tokens ${whole(from + 1)} to ${whole(to)}`;
}

/**
 * Returns a node's text. Its first token, at which the answers diverge, is marked (except in the root).
 * @param {Lane} lane
 * @param {AnswerNode} node
 * @param {boolean} isRoot
 */
function textOf(lane, { from, to, children }, isRoot) {
  const tokens = lane.tokens.slice(from, to);
  const texts = tokens.map(({ isEnd, text }) => (isEnd ? "" : shown(text)));
  const isComplete = !children.length && lane.steps.at(-1)?.stop === "eos";
  return make(
    "p",
    "sv-text",
    ...(isRoot || !texts[0] ? [texts[0] ?? ""] : [make("mark", "", texts[0])]),
    texts.slice(1).join(""),
    ...(isComplete ? [make("em", "", tokens.length > 1 ? " (end)" : "(ends here)")] : []),
  );
}
