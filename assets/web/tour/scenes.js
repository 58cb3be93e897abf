// The other scenes of the tour: one big figure, one picture of How it works, or words alone.

import { figure } from "../core/words.js";
import { make } from "../core/dom.js";
import { laneSpeedup, speedupRemark, speedupText } from "../core/speedup.js";
import { folds } from "../core/folds.js";
import { Lane } from "../core/trace.js";
import { PICTURES } from "../explain/explain.js";
import { fact, recording } from "../explain/recordings.js";
import { RaceScene } from "./race_scene.js";

class FigureScene {
  /**
   * @param {HTMLElement} element
   * @param {SceneSpec} spec
   */
  constructor(element, spec) {
    this.beats = [{}];
    const [value, ...lines] = spec.fact ? measured(spec) : ofRecording(spec.recording || "");
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

/** @param {SceneSpec} spec */
function measured(spec) {
  return [
    `${fact(spec.fact || "")}×`,
    `and ${fact(spec.line || "")}× on natural text, which it cannot foresee`,
    `${fact(`${spec.of}-command`)}, on ${fact(`${spec.of}-where`)}`,
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

  /**
   * isPlayed: whether things may move by themselves.
   * @param {number} index
   * @param {boolean} isPlayed
   */
  beat(index, isPlayed) {
    const { picture } = this;
    if (!picture) return;
    const { tau, commit, mismatch, play, query } = this.beats[index];
    if (tau !== undefined) picture.setTau(tau);
    if (commit !== undefined) picture.seek(2 * picture.fullCommit() + 1 + commit);
    if (mismatch !== undefined) picture.seek(2 * picture.tellingMismatch() + 1 + mismatch);
    if (play && isPlayed) picture.play();
    else if (play) picture.seek(picture.last);
    if (query !== undefined) picture.choose(query);
  }

  get isPlaying() {
    return Boolean(this.picture && this.picture.timer);
  }

  leave() {
    if (this.isPlaying) this.picture?.pause();
  }
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
