// The two clocks of a run, both folds over its trace: measured seconds of decoding, and passes, in which every lane makes
// one forward at each beat, however long it took. What stands on an axis, on the scrubber or beside it goes by one of them.

/**
 * begin, end: of a forward on it. axis: its title. finest: of places between which a reader may stop; write: a place in words.
 * @type {Record<"passes" | "seconds", Clock>}
 */
export const CLOCKS = {
  passes: {
    name: "passes",
    begin: (step) => step.index,
    end: (step) => step.index + 1,
    axis: "forward passes",
    write: (at) => `pass ${Math.floor(at)}`,
  },
  seconds: {
    name: "seconds",
    begin: (step) => step.clock - step.seconds,
    end: (step) => step.clock,
    axis: "seconds of decoding",
    write: (at) => `${at.toFixed(3)} s`,
  },
};
