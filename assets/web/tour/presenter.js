// Presenter mode: the tour in a dialog over the page, one stop at a time, driven by the space bar.
// The browser's own modal dialog keeps the focus in, the page inert, and gives the focus back.

import { make, put, targetOf } from "../core/dom.js";
import { makeScene } from "./scenes.js";
import { TOUR } from "./tour.js";

class Presenter {
  /** @type {number} */
  beat;
  /** @type {number} */
  stop;
  /** @type {HTMLButtonElement} */
  live;
  /** @type {HTMLElement} */
  where;
  /** @type {Scene} */
  scene;

  /** @param {Stop[]} tour */
  constructor(tour) {
    this.tour = tour;
    this.dialog = make("dialog", "mars-race mars-present");
    this.dialog.setAttribute("aria-modal", "true");
    this.dialog.setAttribute("aria-labelledby", "pr-headline");
    this.dialog.tabIndex = -1;
    this.line = make("i", "pr-done");
    const track = make("div", "pr-progress");
    track.append(this.line);
    this.headline = make("h2", "pr-headline");
    this.headline.id = "pr-headline";
    this.says = make("p", "pr-says");
    this.says.setAttribute("aria-live", "polite");
    this.stage = make("div", "pr-stage");
    this.dialog.append(track, this.headline, this.says, this.stage, this.bar());
    this.dialog.addEventListener("keydown", (event) => this.key(event));
    this.dialog.addEventListener("close", () => this.closed());
  }

  bar() {
    const bar = make("footer", "pr-bar");
    /**
     * @param {string} text
     * @param {string} key
     * @param {() => void} act
     * @param {string} [className]
     */
    const button = (text, key, act, className = "") => {
      const node = make("button", className, text);
      node.type = "button";
      node.title = key;
      node.addEventListener("click", () => {
        act();
        this.dialog.focus(); // so that the space bar goes on
      });
      bar.append(node);
      return node;
    };
    button("Back", "← key", () => this.back());
    button("Next", "space bar or → key", () => this.next(), "pr-next");
    button("Again", "R key", () => this.restart());
    this.live = button("Run it live", "L key", () => this.goLive(), "pr-golive");
    this.where = make("span", "pr-where");
    bar.append(this.where);
    button("Leave", "Escape key", () => this.dialog.close(), "pr-leave");
    return bar;
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
      this.scene = makeScene(this.stage, scene);
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
    if (event.ctrlKey || event.metaKey || event.altKey) return;
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
