// The recording that a page opens with: its mark, the caption that says what is seen, and that it plays once, slowly,
// as soon as it was read and is in sight. It ends with whatever a visitor does about it: another prompt, another run,
// the player. Knows the view, not the page around it.

import { find, make } from "../../core/dom.js";
import { headerOf, mainLane } from "../../core/folds.js";
import { SLOWEST } from "../player/player.js";

const SENTENCE = `A recording, played ${1 / SLOWEST} times slower than it ran.`;

export class Opening {
  /** @param {RaceView} view */
  constructor(view) {
    this.view = view;
    this.isDue = false;
    this.isBegun = false;
    this.isInSight = false;
    this.badge = find(view.root, ".rv-recorded");
    this.caption = find(view.root, ".rv-caption");
    const place = [make("span", "rv-beside", "right"), make("span", "rv-beneath", "below")];
    this.caption.replaceChildren(
      "Each shaded group was written in one pass of the model. An ordinary model (",
      ...place,
      ") needs one pass per token.",
    );
  }

  /**
   * A run comes on show. Only the first one opens the page, and only where things may move does it play.
   * @param {Run} run
   */
  meet({ recorded, lanes }) {
    const { root, player, playhead, panes } = this.view;
    this.badge.hidden = !recorded;
    this.badge.textContent = typeof recorded === "string" ? `recorded ${recorded.split(", on ")[0]}` : "recorded run";
    const isFirst = Boolean(root.dataset.opens && recorded && lanes.length === 2);
    this.caption.hidden = !isFirst;
    if (this.isBegun) player.speed = 1;
    this.isBegun = false;
    this.isDue = isFirst && !player.stillness.matches;
    root.dataset.opens = "";
    if (!this.isDue) return;
    playhead.hold();
    new IntersectionObserver((seen, observer) => {
      if (!seen.some((each) => each.isIntersecting)) return;
      observer.disconnect();
      this.isInSight = true;
      this.view.schedule();
    }).observe(panes);
  }

  // What the view says of its state meanwhile.
  get sentence() {
    return this.isDue ? SENTENCE : "";
  }

  // Called at each draw.
  follow() {
    const { run, player, playhead, wanted } = this.view;
    if (!this.isDue || !run?.lanes.every((lane) => lane.end)) return;
    const isWanted = wanted === null || wanted === headerOf(mainLane(run)).prompt;
    const isLeft = this.isBegun ? !player.isPlaying : !playhead.isAtStart;
    if (!isWanted) {
      player.isPlaying = false;
      playhead.seek(Infinity);
    }
    if (!isWanted || isLeft) this.isDue = false;
    else if (!this.isBegun && this.isInSight) this.begin();
  }

  begin() {
    this.isBegun = true;
    this.view.player.speed = SLOWEST;
    this.view.player.toggle();
  }
}
