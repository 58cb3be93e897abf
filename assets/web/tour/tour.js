// The tour in a dialog over the page (presenter mode), one stop at a time, driven by the space bar. The browser's modal
// dialog traps the focus, makes the page inert and restores the focus.

import { button, isModified, make, put, targetOf } from "../core/dom.js";
import { folds } from "../core/folds.js";
import { afterLoop } from "../core/loops.js";
import { isSameText, passesText } from "../core/result.js";
import { laneSpeedup, speedupParts, speedupSentence } from "../core/speedup.js";
import { Lane } from "../core/trace.js";
import { counted, figure, whole } from "../core/words.js";
import { recording } from "../explain/explain.js";
import { FrontierScene } from "./measured_scenes.js";
import { AskScene, DialScene, RaceScene } from "./race_scene.js";
import { MODEL, TOUR } from "./stops.js";

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
    this.model = make("span", "pr-model");
    this.notes = make("aside", { class: "pr-notes", "aria-label": "Notes", hidden: "" });
    /** @type {ShownRun | null} */
    this.told = null; // the latest displayed run
    this.live = this.button("Run it live", "L key", () => this.goLive(), "pr-golive");
    this.dialog = make(
      "dialog",
      { class: "mars-race mars-present", "aria-modal": true, "aria-labelledby": "pr-headline", tabindex: -1 },
      make("div", "pr-progress", this.line),
      this.headline,
      this.says,
      this.stage,
      this.notes,
      this.bar(),
    );
    this.dialog.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("close", () => this.closed());
    Object.assign(this.dialog, { presenter: this });
  }

  bar() {
    return make(
      "footer",
      "pr-bar",
      this.button("Back", "← key", () => this.back()),
      this.button("Next", "space bar or → key", () => this.next(), "pr-next"),
      this.button("Again", "R key", () => this.restart()),
      this.live,
      this.button("Notes", "N key", () => this.toggleNotes()),
      this.model,
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
      this.dialog.focus(); // so that the space bar works
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
    /** @type {(() => void) | undefined} */ (window.mars.giveBack)?.(); // a page of its own has no controls
  }

  toggleNotes() {
    this.notes.hidden = !this.notes.hidden;
  }

  /**
   * Shows a stop at a beat. isPlayed: when moving forward, so that it is animated if motion is allowed.
   * @param {number} stop
   * @param {number} beat
   * @param {boolean} [isPlayed]
   */
  go(stop, beat, isPlayed = true) {
    const { headline, says, notes, scene } = this.tour[stop];
    if (stop !== this.stop || beat < this.beat) {
      this.told = this.scene?.told || this.told;
      if (this.scene) this.scene.leave();
      this.stage.replaceChildren();
      this.stage.dataset.kind = scene.kind;
      put(this.headline, headline);
      put(this.says, says); // words first: a scene gets the remaining space
      put(this.notes, notes);
      this.scene = new SCENES[scene.kind](this.stage, scene, this.told);
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
    put(this.model, this.scene.model || MODEL);
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
    const isControl = targetOf(event).matches("button, input, textarea");
    if (isModified(event)) return;
    /** @type {Record<string, () => void>} */
    const acts = {
      PageDown: () => this.next(),
      PageUp: () => this.back(),
      r: () => this.restart(),
      l: () => this.goLive(),
      n: () => this.toggleNotes(),
      Escape: () => this.dialog.close(),
    };
    if (!isControl) acts[" "] = () => this.next();
    if (!targetOf(event).matches("input"))
      Object.assign(acts, { ArrowRight: () => this.next(), ArrowLeft: () => this.back() });
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    event.stopPropagation(); // not for the page behind
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

// A stop with one beat and no animation.
class StillScene {
  /** @type {Beat[]} */
  beats = [{}];

  /** @param {number} _index */
  beat(_index) {}

  leave() {}
}

// Passes and seconds of the run that was shown before, or of the recording if there was none.
class FigureScene extends StillScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   * @param {ShownRun | null} told
   */
  constructor(element, spec, told) {
    super();
    const shown =
      told && told.lanes.length > 1 && told.lanes[0].steps.length ? told : recordedRun(spec.recording || "");
    this.model = shown?.lanes[0].header?.checkpoint || "";
    if (!shown) element.append(make("p", "pr-figureline", "The recording of this stop did not come with the page."));
    else element.append(...figureLines(shown));
  }
}

/**
 * @param {string} name
 * @returns {ShownRun | null}
 */
function recordedRun(name) {
  const recorded = recording(name);
  if (!recorded) return null;
  const lanes = recorded.lanes.map(({ name: lane, title, lines }) => Lane.of(lines, { lane, title }));
  return { lanes, note: `Recorded ${recorded.note}` };
}

/** @param {ShownRun} told */
function figureLines({ lanes, note }) {
  const [main, other] = lanes;
  const found = laneSpeedup(main, other);
  const [value, unit] = speedupParts(found);
  const isSame = isSameText(main, other);
  const own = passesText(main, isSame) + (isSame ? ` for ${counted(folds.tokens(main), "token")}` : "");
  const theirs = isSame ? whole(folds.forwards(other)) : figure(folds.perForward(other));
  const passes = `${own}. ${other.isAr ? "Plain AR" : other.title}: ${theirs}.`;
  const rates = `${figure(folds.perSecond(main))} against ${figure(folds.perSecond(other))} tokens per second of decoding here`;
  return [
    make("p", "pr-figureline pr-passes", afterLoop(lanes, passes)),
    make("p", { class: "pr-figure", "data-words": String(!/\d/.test(value)) }, value, make("small", "", unit)),
    make("p", "pr-figureline", `${rates}: ${speedupSentence(found)}.`),
    make("p", "pr-figureline", `${note}.`),
  ];
}

/** @type {Record<string, new (element: HTMLElement, spec: SceneSpec, told: ShownRun | null) => Scene>} */
const SCENES = {
  ...{ race: RaceScene, figure: FigureScene, dial: DialScene, ask: AskScene },
  frontier: FrontierScene,
};
