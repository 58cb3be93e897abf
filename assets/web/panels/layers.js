// The panel "Layers": what each token of a pass would predict after every layer, with masks next to the tokens that
// were written at their positions. The server has to run the model for this, so the panel requests one pass at a time,
// after the visitor has stayed at the pass for a moment. Draws the columns of folds/layers.js.

import { make, put } from "../core/dom.js";
import { counted, probability, whole } from "../core/words.js";
import { columnsOf, fedOf, whyNot } from "../folds/layers.js";

const PAUSE = 250; // milliseconds for which a pass must be displayed before it is requested
const MOST_KEPT = 40; // maximum number of cached answers
const AWAY = "Layers need the model. Open this run on a server that has it loaded.";
const GOING = "While text streams, click a token to read the layers of its pass.";
const HOW =
  "The model's final norm and output head are applied after every layer (logit lens). Darker: more confident. Frame: from this layer on, the prediction no longer changes. ";
const LIMITS =
  "The top row is the model's output before a sampler head or repetition penalty. The rows below are a projection: early layers may already encode a token that the output head cannot read yet (tuned lens, arXiv 2303.08112). More on the states of masks: arXiv 2603.17942.";

export class LayersPanel {
  static id = "layers";

  static title = "Layers";

  /**
   * @param {HTMLElement} element
   * @param {View} view
   */
  constructor(element, view) {
    this.view = view;
    element.classList.add("rv-la");
    /** @type {Map<string, LayersAnswer>} */
    this.answers = new Map();
    this.wanted = ""; // key of the pass to show
    this.asked = ""; // key of the pass that is being requested
    this.built = ""; // key of the pass that is drawn
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
    this.head = make("p", "rv-la-head");
    this.say = make("p", { class: "rv-la-say", "aria-live": "polite" });
    this.list = make("ul", "rv-la-masks");
    this.table = make("table", "rv-la-table rv-num");
    const attributes = { class: "rv-la-scroll", tabindex: 0, role: "region", "aria-label": "Layers of this pass" };
    this.scroll = make("div", attributes, this.table);
    this.note = make("p", "rv-la-note", HOW, LIMITS);
    element.append(this.head, this.say, this.list, this.scroll, this.note);
  }

  draw() {
    const { view } = this;
    const { lane, step: index } = view.focus;
    const step = lane.steps[index];
    const isGoing = view.run.lanes.some(({ end }) => !end) && !view.selected;
    const why = !step ? "No pass to show yet." : !view.server.layers ? AWAY : isGoing ? GOING : whyNot(lane, step);
    this.wanted = why ? "" : `${view.run.id} ${lane.name} ${index} ${lane.tokens.length}`;
    put(this.head, step ? `Pass ${whole(index + 1)} of ${lane.title}` : "");
    clearTimeout(this.timer);
    const answer = this.answers.get(this.wanted);
    if (why || !answer) this.empty(why || "Reading the layers…");
    else if ("error" in answer) this.empty(answer.error);
    else this.build(lane, index, answer);
    if (!why && !answer) this.timer = setTimeout(() => this.ask(lane, index), PAUSE);
  }

  /**
   * Requests the layers of a pass, one request at a time. If another pass is shown when the answer arrives, `draw`
   * requests that pass next.
   * @param {Lane} lane
   * @param {number} index
   */
  async ask(lane, index) {
    if (this.asked) return;
    const key = (this.asked = this.wanted);
    const answer = await this.view.server.layers?.(fedOf(lane, index)).catch(() => null);
    this.asked = "";
    if (this.answers.size >= MOST_KEPT) this.answers.delete([...this.answers.keys()][0]);
    this.answers.set(key, answer ?? { error: "The server did not respond. Select the pass again in a moment." });
    this.draw();
    if ("error" in (answer ?? { error: "" })) this.answers.delete(key); // errors are not cached, because a retry may succeed
  }

  /** @param {string} sentence */
  empty(sentence) {
    put(this.say, sentence);
    this.built = "";
    this.list.replaceChildren();
    this.table.replaceChildren();
    for (const node of [this.scroll, this.list, this.note]) node.hidden = true;
  }

  /**
   * @param {Lane} lane
   * @param {number} index
   * @param {ToldLayers} told
   */
  build(lane, index, told) {
    if (this.built === this.wanted) return;
    this.built = this.wanted;
    lane.learn(told.vocabulary);
    const columns = columnsOf(lane, index, told);
    const last = told.columns[0].says.length - 1;
    const masks = columns.filter(({ kind }) => kind === "mask");
    put(
      this.say,
      masks.length ? "" : `This pass had no masks. The table shows ${counted(columns.length, "token")} instead.`,
    );
    this.list.replaceChildren(...masks.map((mask) => make("li", "", maskText(lane, mask, columns, last))));
    for (const node of [this.scroll, this.list, this.note]) node.hidden = false;
    const heads = ["fed", "says", ""].map((name, row) => headRow(lane, name, row, columns));
    const layers = [...Array(last + 1).keys()].reverse();
    const rows = layers.map((layer) => layerRow(lane, layer, columns, last));
    const caption = make("caption", "", "Predictions of each token by layer, last layer on top");
    this.table.replaceChildren(caption, make("thead", "", ...heads), make("tbody", "", ...rows));
  }
}

/**
 * Describes what a mask predicts and from which layer on, compared with the real token at its position.
 * @param {Lane} lane
 * @param {LayerColumn} mask
 * @param {LayerColumn[]} columns
 * @param {number} last
 */
function maskText(lane, mask, columns, last) {
  const real = columns.find(({ kind, number }) => kind === "real" && number === mask.number);
  const settled = `Mask ${mask.number} settles on “${lane.tokenName(mask.says[last][0])}” at layer ${mask.settled} of ${last}`;
  const other = mask.proposed === null ? "" : `; the run proposed “${lane.tokenName(mask.proposed)}” instead`;
  const outcome = `${other}${mask.fate ? ` (${mask.fate})` : ""}`;
  if (!real) return `${settled}${outcome}.`;
  return `${settled}${outcome}; the real token in its place settles on “${lane.tokenName(real.says[last][0])}” at layer ${real.settled}.`;
}

/** @type {Record<string, string>} */
const KINDS = { token: "rv-la-token", mask: "rv-la-mask", real: "rv-la-real" };

/**
 * Returns one of the three rows above the layers: the input (row 0), the final prediction (row 1), and what became of
 * it (row 2).
 * @param {Lane} lane
 * @param {string} name
 * @param {number} row
 * @param {LayerColumn[]} columns
 */
function headRow(lane, name, row, columns) {
  /** @param {LayerColumn} column */
  const text = ({ kind, number, id, says, proposed, fate }) => {
    if (row === 0) return id === null ? `mask ${number}` : lane.tokenName(id);
    if (row === 1) return `→ ${lane.tokenName(says[says.length - 1][0])}`;
    if (kind === "real") return "as a real token";
    return proposed === null ? fate : `${lane.tokenName(proposed)} ${fate}`;
  };
  const cells = columns.map((column) => {
    const cell = make("th", { class: KINDS[column.kind], scope: "col" }, text(column));
    if (row === 2 && column.fate) cell.dataset.fate = column.fate;
    return cell;
  });
  return make("tr", "", make("th", { scope: "row" }, name), ...cells);
}

/**
 * @param {Lane} lane
 * @param {number} layer
 * @param {LayerColumn[]} columns
 * @param {number} last
 */
function layerRow(lane, layer, columns, last) {
  const cells = columns.map(({ kind, says, settled }) => {
    const [id, chance] = says[layer];
    const classes = [KINDS[kind], layer >= settled && "rv-la-known", layer === settled && "rv-la-first"];
    const cell = make("td", classes.filter(Boolean).join(" "), lane.tokenName(id));
    cell.style.setProperty("--p", String(chance));
    cell.title = `${layerName(layer, last)}: “${lane.tokenName(id)}” ${probability(chance)}`;
    return cell;
  });
  return make("tr", "", make("th", { scope: "row" }, layer ? String(layer) : "embedding"), ...cells);
}

/**
 * @param {number} layer
 * @param {number} last
 */
const layerName = (layer, last) => (layer ? `after layer ${layer} of ${last}` : "before the first layer");
