// Texts and content of each slide. The texts contain no figures, which come from recorded or live runs;
// tests/app/test_recordings.py checks that each recording shows what its slide claims. Each beat of a race plays until the
// first lane has made a number of passes, or to the end. Each beat of a picture shows a pass, or a threshold.

export const BUTTONS = {
  back: ["Back", "← key"],
  next: ["Next", "space bar or → key"],
  again: ["Replay", "R key"],
  live: ["Run it live", "L key"],
  notes: ["Notes", "N key: open the notes in a separate window"],
  leave: ["Exit", "Escape key"],
};

export const SENTENCES = {
  noRecording: "The recording of this slide was not loaded.",
  noNotes: "Allow pop-ups for this page to see the notes.",
  starting: "Starting…",
  failed: "The live run failed; this is a recording.",
  late: "The live run did not start within three seconds; this is a recording.",
  live: "Live, on this server.",
  ahead: "predicted ahead",
  ask: "Type a prompt and press Enter",
  askName: "Prompt from the audience",
};

/** @type {Stop[]} */
export const TOUR = [
  {
    headline: "One pass, several tokens",
    says: "A forward pass is one evaluation of the whole model. Plain AR writes one token in each. Masks after the text let the same pass predict further tokens.",
    notes:
      "Left: what the pass is fed. Right: what it predicts there, with its confidence. The tokens come from the pass before; the predictions at the masks are drafts for the next pass. Ask the audience to follow one draft from here into the next pass (space bar).",
    scene: { kind: "picture", recording: "sort-words", picture: "ladder", beats: [{ from: -2 }, { from: -1 }] },
  },
  {
    headline: "The same text in fewer passes",
    says: "Both lanes make one pass per tick. MARS writes each underlined group in one pass.",
    notes:
      "Let the first passes play, then continue to the end. L runs the same prompt on this server; if it does not start within three seconds, the recording plays and says so. MARS here is the base model with an adapter on masks; nothing is copied from the prompt.",
    scene: {
      kind: "race",
      recording: "average",
      lanes: ["mars", "ar"],
      isLive: true,
      beats: [{ until: 3 }, { until: "end" }],
    },
  },
  {
    headline: "τ says how sure is sure enough",
    says: "Predictions are accepted from left to right until one falls below the threshold τ (tau). A lower τ accepts more of them, and more mistakes.",
    notes:
      "Move τ with the space bar or by hand. The line is τ, the bars are the model's own confidences in that pass.",
    scene: { kind: "picture", recording: "sort-words", picture: "dial", beats: [{ tau: 0.9 }, { tau: 0.4 }] },
  },
  {
    headline: "Lossless repairs the mistakes",
    says: "The next pass reads the drafts anyway, so it verifies them at no extra pass. Where AR would write another token, AR's token takes the draft's place.",
    notes:
      "The text equals plain AR's, token for token. This is why τ may be low: a wrong draft costs little and changes nothing.",
    scene: { kind: "picture", recording: "sort-words", picture: "repair", beats: [{ from: -2 }, { from: -1 }] },
  },
  {
    headline: "What it saves in time",
    says: "A pass with masks does more work, so time falls by less than the passes do. Prompt lookup, which copies earlier text, is a third method to compare with.",
    notes:
      "Say this before anybody asks. All three lanes write the same text. Times are measured on the machine that is named below, and differ between machines.",
    scene: {
      kind: "race",
      recording: "average",
      lanes: ["mars", "ar", "lookup"],
      clock: "seconds",
      beats: [{ until: "end" }],
    },
  },
  {
    headline: "Your turn",
    says: "Call out a prompt, or pick one: it runs on this server, lossless, next to plain AR. Until then, a recording is shown.",
    notes:
      "Type a suggested prompt and press Enter. The three suggestions are examples of the page. If the server does not respond, the recording stays on screen. Press Escape to leave; the page returns to its state before the talk.",
    scene: {
      kind: "ask",
      recording: "area",
      lanes: ["mars", "ar"],
      beats: [{ until: "end" }],
      prompts: [
        "What is the area of a rectangle that is 6 cm long and 4 cm wide?",
        "Write a Python function that returns the average of a list of numbers.",
        "List three benefits of exercise, and explain each.",
      ],
    },
  },
];
