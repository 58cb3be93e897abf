// The other scenes of the tour: one big figure, one picture of How it works, or words alone.

import { figure } from "../core/words.js";
import { make } from "../core/dom.js";
import { laneSpeedup, speedupRemark, speedupText } from "../core/speedup.js";
import { folds } from "../core/folds.js";
import { Lane } from "../core/trace.js";
import { PICTURES } from "../explain/explain.js";
import { recording } from "../explain/recordings.js";
import { RaceScene } from "./race_scene.js";

class FigureScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    this.beats = [{}];
    const [value, ...lines] = ofRecording(spec.recording || "");
    element.append(make("p", "pr-figure", value), ...lines.map((line) => make("p", "pr-figureline", line)));
  }

  beat() {}

  leave() {}
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
    `${figure(folds.perSecond(main))} against ${figure(folds.perSecond(other))} tokens per second of decoding, ${speedupRemark(speedup)}; ${folds.forwards(main)} against ${folds.forwards(other)} forwards`,
    `One run, recorded ${recorded.note}.`,
  ];
}

class PictureScene {
  /** @type {Beat[]} */
  beats;

  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    this.beats = spec.beats || [];
    const place = make("div", "ex-picture");
    const holder = make("div", "mars-explain pr-picture");
    holder.append(place);
    element.append(holder);
    this.picture = /** @type {Picture | null} */ (PICTURES[spec.picture || ""](place));
    if (!this.picture) this.beats = [{}];
  }

  /** @param {number} index */
  beat(index) {
    const { picture } = this;
    if (!picture) return;
    const { tau, mismatch } = this.beats[index];
    if (tau !== undefined) picture.setTau(tau);
    if (mismatch !== undefined) picture.seek(2 * picture.tellingMismatch() + 1 + mismatch);
  }

  leave() {}
}

class WordsScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    this.beats = [{}];
    element.append(...(spec.lines || []).map((line) => make("p", "pr-line", line)));
  }

  beat() {}

  leave() {}
}

/** @type {Record<string, new (element: HTMLElement, spec: SceneSpec) => Scene>} */
const SCENES = { race: RaceScene, figure: FigureScene, picture: PictureScene, words: WordsScene };

/**
 * @param {HTMLElement} element
 * @param {SceneSpec} spec
 */
export const makeScene = (element, spec) => new SCENES[spec.kind](element, spec);
