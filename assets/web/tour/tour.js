// The tour in a dialog over the page (presenter mode), one stop at a time, driven by the space bar; what each stop says,
// and the scenes that show it.
// The browser's own modal dialog keeps the focus in, the page inert, and gives the focus back.

import { button, isModified, make, put, targetOf } from "../core/dom.js";
import { folds } from "../core/folds.js";
import { laneSpeedup, speedupRange, speedupText } from "../core/speedup.js";
import { Lane } from "../core/trace.js";
import { figure } from "../core/words.js";
import { PICTURES, recording } from "../explain/explain.js";
import { RaceScene } from "./race_scene.js";

class Presenter {
  /** @type {number} */
  beat;
  /** @type {number} */
  stop;
  /** @type {Scene} */
  scene;

  /** @param {Stop[]} tour */
  constructor(tour) {
    this.tour = tour;
    this.line = make("i", "pr-done");
    this.headline = make("h2", { class: "pr-headline", id: "pr-headline" });
    this.says = make("p", { class: "pr-says", "aria-live": "polite" });
    this.stage = make("div", "pr-stage");
    this.where = make("span", "pr-where");
    this.live = this.button("Run it live", "L key", () => this.goLive(), "pr-golive");
    this.dialog = make(
      "dialog",
      { class: "mars-race mars-present", "aria-modal": true, "aria-labelledby": "pr-headline", tabindex: -1 },
      make("div", "pr-progress", this.line),
      this.headline,
      this.says,
      this.stage,
      this.bar(),
    );
    this.dialog.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("close", () => this.closed());
  }

  bar() {
    return make(
      "footer",
      "pr-bar",
      this.button("Back", "← key", () => this.back()),
      this.button("Next", "space bar or → key", () => this.next(), "pr-next"),
      this.button("Again", "R key", () => this.restart()),
      this.live,
      this.where,
      this.button("Leave", "Escape key", () => this.dialog.close(), "pr-leave"),
    );
  }

  /**
   * @param {string} text
   * @param {string} key
   * @param {() => void} act
   * @param {string} [className]
   */
  button(text, key, act, className = "") {
    return button({ class: className, title: key }, text, () => {
      act();
      this.dialog.focus(); // so that the space bar goes on
    });
  }

  open() {
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.dialog.focus();
    this.go(0, 0);
  }

  closed() {
    this.scene.leave();
    this.dialog.remove();
  }

  /**
   * Shows a stop at a beat; `isPlayed` when going on, so that it moves as far as motion is wanted.
   * @param {number} stop
   * @param {number} beat
   * @param {boolean} [isPlayed]
   */
  go(stop, beat, isPlayed = true) {
    const { headline, says, scene } = this.tour[stop];
    if (stop !== this.stop || beat < this.beat) {
      if (this.scene) this.scene.leave();
      this.stage.replaceChildren();
      this.stage.dataset.kind = scene.kind;
      put(this.headline, headline);
      put(this.says, says); // first the words: a scene takes the room that they leave
      this.scene = new SCENES[scene.kind](this.stage, scene);
    }
    this.stop = stop;
    this.beat = Math.max(0, Math.min(beat, this.scene.beats.length - 1));
    this.live.hidden = !this.scene.canLive;
    if (this.scene.beats.length)
      this.scene.beat(this.beat, isPlayed && !matchMedia("(prefers-reduced-motion: reduce)").matches);
    this.drawPlace();
  }

  drawPlace() {
    const { stop, beat, tour, dialog } = this;
    const part = (stop + (beat + 1) / Math.max(1, this.scene.beats.length)) / tour.length;
    this.line.style.width = `${100 * part}%`;
    put(this.where, `${stop + 1} of ${tour.length}`);
    Object.assign(dialog.dataset, { stop: String(stop), beat: String(beat), over: String(part === 1) });
  }

  next() {
    if (this.beat + 1 < this.scene.beats.length) this.go(this.stop, this.beat + 1);
    else if (this.stop + 1 < this.tour.length) this.go(this.stop + 1, 0);
  }

  back() {
    if (this.beat > 0) this.go(this.stop, this.beat - 1, false);
    else if (this.stop > 0) this.go(this.stop - 1, Infinity, false);
  }

  restart() {
    this.beat = Infinity;
    this.go(this.stop, 0);
  }

  goLive() {
    if (this.scene.canLive) this.scene.goLive?.();
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    const isControl = targetOf(event).matches("button, input");
    if (isModified(event)) return;
    /** @type {Record<string, () => void>} */
    const acts = {
      PageDown: () => this.next(),
      PageUp: () => this.back(),
      r: () => this.restart(),
      l: () => this.goLive(),
      Escape: () => this.dialog.close(),
    };
    if (!isControl) acts[" "] = () => this.next();
    if (!targetOf(event).matches("input"))
      Object.assign(acts, { ArrowRight: () => this.next(), ArrowLeft: () => this.back() });
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    event.stopPropagation(); // the keys of the page behind are not meant
    if (!act) return;
    event.preventDefault();
    act();
  }
}

// Opens the tour over the page; called by its button.
export function mountPresenter() {
  if (document.querySelector(".mars-present")) return;
  new Presenter(TOUR).open();
}

// What each stop says and shows; figures are not written here, they come from recordings. A race's beats: play until a
// number of forwards of the first lane, a refusal (race_scene.js) or the end; `why` shows the proposals of that forward.
// A picture's beats are what its scene understands.
/** @type {Stop[]} */
const TOUR = [
  {
    headline: "Several tokens from one forward pass",
    says: "A token is a word or a piece of one; a forward pass is one evaluation of the whole model. Plain AR needs a pass for every token. MARS, the same model, writes each shaded group in one.",
    scene: { kind: "race", recording: "python", isLive: true, beats: [{ until: 3 }, { until: "end" }] },
  },
  {
    headline: "What that makes of the time",
    says: "Tokens per second of MARS over those of plain AR, in the run just shown; reading the prompt is left out of both.",
    scene: { kind: "figure", recording: "python" },
  },
  {
    headline: "It stops where it is not sure",
    says: "The model proposes several tokens in each pass, with a confidence each. They are taken from left to right until the first one below the threshold τ.",
    scene: {
      kind: "race",
      recording: "tau-moved",
      isAlone: true,
      beats: [{ until: "refusal" }, { until: "refusal", why: true }],
    },
  },
  {
    headline: "One knob: the threshold τ",
    says: "A lower τ takes more from each forward and risks more of it.",
    scene: { kind: "picture", picture: "tau", beats: [{ tau: 0.95 }, { tau: 0.8 }, { tau: 0.5 }, { tau: 1 }] },
  },
  {
    headline: "Lossless: AR's text, token for token",
    says: "Only what AR confirms is written. Same text on both sides, fewer forwards on the left.",
    scene: { kind: "race", recording: "lossless", isLive: true, beats: [{ until: 4 }, { until: "end" }] },
  },
  {
    headline: "Checked at no extra forward",
    says: "Drafts come back as real tokens, so the next forward also says what AR would have written in their place.",
    scene: { kind: "picture", picture: "lossless", beats: [{ mismatch: 0 }, { mismatch: 1 }] },
  },
  {
    headline: "Not every text gets faster",
    says: "Free prose is hard to foresee, for a small model most of all: one token per forward, and masks that cost time.",
    scene: { kind: "race", recording: "tale", beats: [{ until: 18 }, { until: "end" }] },
  },
  {
    headline: "Your turn",
    says: "Leave with Escape, type a prompt and press Run. Move τ and B while it writes.",
    scene: {
      kind: "words",
      lines: [
        "One checkpoint, no new parameters, no second model.",
        "Several tokens from a forward wherever the text can be foreseen.",
        "Lossless where the text must be AR's own.",
      ],
    },
  },
];

// One that has one beat, and stands still.
class StillScene {
  /** @type {Beat[]} */
  beats = [{}];

  /** @param {number} _index */
  beat(_index) {}

  leave() {}
}

class FigureScene extends StillScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    super();
    const [value, ...lines] = ofRecording(spec.recording || "");
    element.append(make("p", "pr-figure", value), ...lines.map((line) => make("p", "pr-figureline", line)));
  }
}

/**
 * First lane over second, as they were recorded.
 * @param {string} name
 */
function ofRecording(name) {
  const recorded = recording(name);
  if (!recorded) return ["–", "The recording of this stop did not come with the page."];
  const [main, other] = recorded.lanes.map(({ name: lane, title, lines }) => Lane.of(lines, { lane, title }));
  const speedup = laneSpeedup(main, other);
  return [
    speedupText(speedup),
    `${figure(folds.perSecond(main))} against ${figure(folds.perSecond(other))} tokens per second of decoding (${speedupRange(speedup)}); ${folds.forwards(main)} against ${folds.forwards(other)} forwards`,
    `One run, recorded ${recorded.note}.`,
  ];
}

class PictureScene extends StillScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    super();
    const place = make("div", "ex-picture");
    element.append(make("div", "mars-explain pr-picture", place));
    this.picture = /** @type {Picture | null} */ (PICTURES[spec.picture || ""](place));
    if (this.picture) this.beats = spec.beats || [];
  }

  /** @param {number} index */
  beat(index) {
    const { picture } = this;
    if (!picture) return;
    const { tau, mismatch } = this.beats[index];
    if (tau !== undefined) picture.setTau(tau);
    if (mismatch !== undefined) picture.seek(2 * picture.tellingMismatch() + 1 + mismatch);
  }
}

class WordsScene extends StillScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    super();
    element.append(...(spec.lines || []).map((line) => make("p", "pr-line", line)));
  }
}

/** @type {Record<string, new (element: HTMLElement, spec: SceneSpec) => Scene>} */
const SCENES = { race: RaceScene, figure: FigureScene, picture: PictureScene, words: WordsScene };
