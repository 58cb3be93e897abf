// The two clocks of a run, both folds over its trace: measured seconds of decoding; and passes, in which every lane
// makes one forward per pass, however long it took. Axes and the scrubber use one of them.

/**
 * begin, end: of a forward. axis: title. finest: the positions at which a reader can stop. write: a position in words.
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
