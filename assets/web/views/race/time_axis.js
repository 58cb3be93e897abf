// The one time axis of a race: what is zoomed or chosen anywhere is so in the charts, on the scrubber and in the text, and
// where the faster lane ended the other's place is kept. Knows the parts of a view; the charts hold the zoom.

import { photoFinish } from "../../core/folds.js";
import { beginOf } from "../../core/folds.js";

export class TimeAxis {
  /** @param {RaceView} view */
  constructor(view) {
    this.view = view;
  }

  zoomed() {
    for (const { view } of this.view.entries) view.range.reveal(this.view.charts.zoom);
    this.view.schedule();
  }

  draw() {
    const { charts, entries, now, player, selected } = this.view;
    const { zoom } = charts;
    const finish = photoFinish(now.lanes);
    charts.select(selected);
    for (const { lane, view: text } of entries) {
      text.range.draw(zoom);
      if (finish && lane === finish.other) text.range.finish(finish);
    }
    const chosen = selected && selected.lane.steps[selected.step];
    player.mark("zoom", zoom);
    player.mark("chosen", chosen && { from: beginOf(chosen), to: chosen.clock });
    player.mark("finish", finish && { from: finish.time, to: finish.time });
    player.draw();
  }
}
