// The tour (presenter mode): a dialog over the page that shows one stop at a time and is driven by the space bar. The
// browser's modal dialog keeps the focus inside, makes the page inert, and restores the focus when it is closed.

import { button, isModified, make, put, targetOf } from "../core/dom.js";
import { whenRecorded } from "../core/recordings.js";
import { AskScene, PictureScene, RaceScene } from "./scenes.js";
import { BUTTONS, SENTENCES, TOUR } from "./stops.js";

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
    /** @type {Window | null} */
    this.notes = null; // separate window with the notes, so that the projector does not show them
    this.onward = this.button(BUTTONS.next, () => this.next(), "pr-next");
    this.live = this.button(BUTTONS.live, () => this.goLive(), "pr-golive");
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
    Object.assign(this.dialog, { presenter: this });
  }

  bar() {
    return make(
      "footer",
      "pr-bar",
      this.button(BUTTONS.back, () => this.back()),
      this.onward,
      this.button(BUTTONS.again, () => this.restart()),
      this.live,
      this.button(BUTTONS.notes, () => this.toggleNotes()),
      this.model,
      this.where,
      this.button(BUTTONS.leave, () => this.dialog.close(), "pr-leave"),
    );
  }

  /** @param {string[]} words the button's text and its tooltip @param {() => void} act @param {string} [className] */
  button([text, key], act, className = "") {
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
    this.notes?.close();
    this.dialog.remove();
    /** @type {(() => void) | undefined} */ (window.mars.giveBack)?.(); // not defined on a separate page, which has no controls
  }

  toggleNotes() {
    if (this.notes && !this.notes.closed) return this.notes.close();
    this.notes = window.open("", "mars-notes", "popup,width=560,height=420");
    if (!this.notes) return put(this.where, SENTENCES.noNotes);
    this.notes.addEventListener("keydown", (event) => this.key(event));
    return this.drawNotes();
  }

  drawNotes() {
    if (!this.notes || this.notes.closed) return;
    const { headline, notes } = this.tour[this.stop];
    const next = this.tour[this.stop + 1]?.headline;
    const { document: page } = this.notes;
    page.title = `Notes: ${headline}`;
    Object.assign(page.body.style, { font: "18px/1.5 system-ui, sans-serif", margin: "24px" });
    page.body.replaceChildren(
      make("h1", "", headline),
      make("p", "", notes),
      make("p", "", next ? `Next: ${next}` : ""),
    );
  }

  /**
   * Shows a stop at a beat. isPlayed: whether to animate the beat, as when the presenter moves forward; never animates
   * if the system asks for reduced motion.
   * @param {number} stop @param {number} beat @param {boolean} [isPlayed]
   */
  go(stop, beat, isPlayed = true) {
    const { headline, says, scene } = this.tour[stop];
    if (stop !== this.stop || beat < this.beat) {
      if (this.scene) this.scene.leave();
      this.stage.replaceChildren();
      this.stage.dataset.kind = scene.kind;
      put(this.headline, headline);
      put(this.says, says); // before the scene, which gets the remaining space
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
    put(this.model, this.scene.model);
    this.drawNotes();
    this.onward.disabled = part === 1;
    Object.assign(dialog.dataset, { stop: String(stop), beat: String(beat), over: String(part === 1) });
  }

  next() {
    if (this.beat + 1 < this.scene.beats.length && !this.scene.isLive) this.go(this.stop, this.beat + 1);
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
      n: () => this.toggleNotes(),
      Escape: () => this.dialog.close(),
    };
    if (!isControl) acts[" "] = () => this.next();
    if (!targetOf(event).matches("input"))
      Object.assign(acts, { ArrowRight: () => this.next(), ArrowLeft: () => this.back() });
    const act = acts[event.key.length === 1 ? event.key.toLowerCase() : event.key];
    event.stopPropagation(); // so that the page behind does not handle the key
    if (!act) return;
    event.preventDefault();
    act();
  }
}

// Opens the presentation over the page; called by the button for it. It needs no server.
export function mountPresenter() {
  whenRecorded(() => {
    if (!document.querySelector(".mars-present")) new Presenter(TOUR).open();
  });
}

/** @type {Record<string, new (element: HTMLElement, spec: SceneSpec) => Scene>} */
const SCENES = { picture: PictureScene, race: RaceScene, ask: AskScene };
