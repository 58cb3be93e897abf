// Texts of the Live tab that contain no values. Help texts are in help.js and the tour's texts in ../tour/stops.js;
// sentences with figures are written where the figures are computed.

export const STATUS = {
  empty: "No run yet. Type a prompt or pick an example, then press Run.",
  starting: "Starting…",
  waiting: "Waiting for the first pass.",
  playing: "Playing the recording; nothing is running.",
  earlier: "An earlier moment of this run.",
  landing: "Done. Playing back the last passes.",
  alone: "Running.",
  turns: "Running. The methods take turns.",
  stopped: "Stopped.",
  unbegun: "Stopped before the first pass. Press Run to start again.",
  failed: "The run failed. Run it again.",
  lost: "The connection was interrupted and the server no longer has this run. Run it again.",
  broken: "This trace cannot be read: one of its lines is invalid.",
};

/** @type {Record<string, { one: string, all: string }>} */
export const ENDS = {
  eos: { one: "answer complete", all: "answers complete" },
  limit: { one: "stopped at the token limit", all: "stopped at the token limit" },
  repeats: { one: "started to loop and was stopped", all: "started to loop and were stopped" },
  deadline: { one: "ran out of time", all: "ran out of time" },
  cancelled: { one: "stopped", all: "stopped" },
  error: { one: "failed", all: "failed" },
};

export const LEGEND = {
  pass: "underline: one pass",
  masks: "predicted ahead (tokens in the pass)",
  lookup: "copied by prompt lookup",
  rejected: "rejected",
  pending: "not verified yet",
  wrong: "AR would have chosen another token",
  differs: "first difference",
  own: "only in this text",
  missing: "the other text has more here",
  sizes: "group sizes",
  more: "more marks",
};

export const SHARE = {
  menu: "Share",
  nothing: "No run to share yet.",
  links: "Link",
  setup: { text: "Setup", hint: "link to this prompt and these settings; opening it fills in the controls" },
  run: { text: "This run", hint: "link to this exact run; opening it replays the run, even without a model" },
  setupCopied: "Link copied. It fills in this prompt and these settings.",
  runCopied: "Link copied. It replays this exact run.",
  longCopied: "Link copied. It replays this exact run. It is long, and some programs cut long links.",
  tooLong: "This prompt is too long for a link. Shorten it, or save the run as a file.",
  runTooLong: "This run is too long for a link. Save it as a file instead.",
  failed: "This did not work. Reload the page and try again.",
};
