// The two clocks of a run, both computed from its trace. "seconds" is the measured decoding time. "passes" counts
// forward passes, however long each took.

/**
 * The two clocks by name. begin, end: return the positions at which a step starts and ends on the clock. axis: title of
 * a chart axis that shows the clock. write: formats a position in words.
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
