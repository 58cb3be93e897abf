// The row of figures, the line of hardware, the status sentence, the legend, the heads of the panes.
// Text only; every number is a fold of the lanes.

import { counted, figure, milliseconds, whole } from "../common/bytes.js";
import { make, put } from "../common/dom.js";
import { DEFINITION, laneSpeedup, speedupRemark, speedupText } from "../common/speedup.js";
import { folds } from "../common/trace.js";

export class Figures {
  constructor(root) {
    this.element = root.querySelector(".rv-figures");
    this.env = root.querySelector(".rv-env");
    this.big = {};
    this.small = {};
  }

  build(hasRace) {
    this.element.replaceChildren();
    this.big = {};
    this.small = {};
    const big = [["perForward", "tokens per forward"], ["perSecond", "tokens per second"], ["forward", "one forward"]];
    if (hasRace) big.unshift(["speedup", "speedup of decoding"]);
    for (const [key, name] of big) {
      const list = make("dl", "rv-figure");
      list.dataset.key = key;
      const value = make("dd", "rv-value rv-num", "–");
      const unit = make("small", "", { speedup: "", perForward: "TPF", perSecond: "tok/s", forward: "ms" }[key]);
      const number = document.createTextNode("–");
      value.replaceChildren(number, unit);
      const sub = make("dd", "rv-sub rv-num", "");
      const title = make("dt", "", name);
      if (key === "speedup") list.title = DEFINITION;
      list.append(title, value, sub);
      this.element.append(list);
      this.big[key] = { list, title, number, sub };
    }
    const list = make("dl", "rv-small rv-num");
    for (const [key, name] of [["first", "to first token"], ["saved", "forwards saved"]]) {
      this.small[key] = make("dd", "", "–");
      list.append(make("dt", "", name), this.small[key]);
    }
    this.element.append(list);
    put(this.env, "");
  }

  update(main, other) {
    const speed = folds.perSecond(main);
    const base = other ? folds.perSecond(other) : NaN;
    const hasBoth = Number.isFinite(speed) && Number.isFinite(base);
    const [num, forwards] = [folds.tokens(main), folds.forwards(main)];
    if (other) this.drawSpeedup(laneSpeedup(main, other), other);
    this.set("perForward", figure(folds.perForward(main)), forwards ? `${whole(num)} in ${counted(forwards, "forward")}` : "");
    this.set("perSecond", figure(speed), hasBoth ? `${other.title} ${figure(base)}` : "");
    this.set("forward", milliseconds(folds.secondsPerForward(main)), hasBoth ? `${other.title} ${milliseconds(folds.secondsPerForward(other))} ms` : "");
    const first = `${milliseconds(folds.toFirst(main))} ms`;
    put(this.small.first, !forwards ? "–" : hasBoth ? `${first} · ${other.title} ${milliseconds(folds.toFirst(other))} ms` : first);
    put(this.small.saved, forwards ? `${whole(num - forwards)} of ${whole(num)}` : "–");
    put(this.env, environment(main.header));
  }

  drawSpeedup(speedup, other) {
    const { list, title } = this.big.speedup;
    list.dataset.kind = speedup.kind;
    put(title, speedup.kind === "slower" ? `slower than ${other.title}` : "speedup of decoding");
    this.set("speedup", speedupText(speedup), speedupRemark(speedup));
  }

  set(key, value, sub) {
    const cell = this.big[key];
    if (!cell) return;
    put(cell.number, value);
    put(cell.sub, sub);
  }
}

export function environment(header) {
  if (!header) return "";
  const versions = Object.entries(header.versions || {}).map(([name, version]) => `${name} ${version}`);
  const threads = header.threads ? `${header.threads} ${header.threads === 1 ? "thread" : "threads"}` : "";
  const parts = [header.checkpoint, header.hardware, header.dtype, threads, ...versions];
  return parts.filter(Boolean).join(" · ");
}

const ENDS = { eos: "reached the end of its text", limit: "reached the limit of tokens", deadline: "ran out of time",
  cancelled: "was stopped", error: "failed" };

// [state, sentence] of the whole run; states are what data-state of the root says.
export function statusOf(run) {
  if (!run) return ["empty", "Nothing has run yet. Write a prompt or take an example, then press Run."];
  const { lanes, note } = run;
  const failed = lanes.find((lane) => lane.end && lane.end.reason === "error");
  if (run.fault) return ["error", run.fault];
  if (failed) return ["error", failed.end.message || "The run failed; run it again."];
  if (lanes.length && lanes.every((lane) => lane.end)) return finished(run);
  if (note.kind === "refused") return [lanes.length ? "error" : "refused", note.text];
  if (!lanes.some((lane) => lane.steps.length)) {
    const isWaiting = note.kind === "loading" || note.kind === "waiting";
    return [note.kind === "loading" ? "loading" : "waiting", (isWaiting && note.text) || "Waiting for the first forward."];
  }
  if (run.pace > 0) {
    return ["slow", `Slow motion, ${timesSlower(run.pace)} times slower: the engine rests between forwards while the clocks stand still.`];
  }
  return ["running", "Real time: this is how fast it runs here."];
}

// A rest of N forwards after each makes it N + 1 times slower.
const timesSlower = (pace) => String(Number((pace + 1).toFixed(1)));

function finished(run) {
  const { lanes } = run;
  const isStopped = lanes.some((lane) => lane.end.reason === "cancelled");
  const message = lanes.map((lane) => lane.end.message).find(Boolean);
  if (isStopped) return ["stopped", `Stopped by the visitor after ${lanes.map((lane) => counted(lane.tokens.length, "token")).join(" and ")}.`];
  if (message) return ["finished", message];
  const reasons = new Set(lanes.map((lane) => lane.end.reason));
  if (reasons.size === 1 && lanes.length > 1) return ["finished", `Finished: both ${ENDS[lanes[0].end.reason].replace("its text", "their texts")}.`];
  return ["finished", `Finished: ${lanes.map((lane) => `${lane.title} ${ENDS[lane.end.reason] || lane.end.reason}`).join(", ")}.`];
}

export function buildLegend(element, onCounts, isOn) {
  const keys = make("span", "rv-keys");
  for (const n of [1, 2, 3, 4, 5]) keys.append(make("span", `rv-swatch rv-c rv-n${n}`, n === 5 ? "5+" : String(n)));
  const button = make("button", "", "counts");
  button.type = "button";
  button.setAttribute("aria-pressed", String(isOn));
  button.addEventListener("click", () => {
    const isNow = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(isNow));
    onCounts(isNow);
  });
  const item = (className, sample, text) => {
    const node = make("span", "");
    node.append(make("span", className, sample), ` ${text}`);
    return node;
  };
  element.replaceChildren(keys, make("span", "", "tokens in one forward, one underline"),
    item("rv-ghost", "refused", "proposal"), item("rv-draft", "draft", "not verified yet"),
    item("rv-mark", "here", "first difference"), button);
}
