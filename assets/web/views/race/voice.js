// What a race tells screen readers: at most one polite sentence per second.

import { put } from "../../core/dom.js";
import { counted } from "../../core/words.js";

const PAUSE = 1000; // milliseconds

export class Voice {
  /** @param {HTMLElement} element */
  constructor(element) {
    this.element = element;
    this.saidAt = 0;
  }

  /**
   * @param {string} state
   * @param {string} sentence
   * @param {Lane} main as it is shown
   * @param {boolean} isFollowing
   */
  say(state, sentence, main, isFollowing) {
    const now = performance.now();
    const isEnd = isFollowing && !["running", "slow", "waiting"].includes(state);
    if (!isEnd && now - this.saidAt < PAUSE) return;
    this.saidAt = now;
    const { steps, tokens } = main;
    const step = steps[steps.length - 1];
    const running = step
      ? `Step ${steps.length}: ${counted(step.count, "token")} accepted, ${tokens.length} in all.`
      : sentence;
    const over = `${sentence} ${counted(tokens.length, "token")} in ${counted(steps.length, "forward")}.`;
    put(this.element, isEnd ? over : running);
  }
}
