// Texts and content of each stop of the tour. The texts contain no figures, which come from recordings;
// tests/app/test_talk.py checks that each recording shows what the text of its stop claims. Each beat of a race plays
// until the first lane has made a certain number of passes, until a pass rejects a proposal (race_scene.js), or to the
// end of the race; `why` shows the proposals of the beat's last pass. Races play pass by pass, unless `clock` is
// "seconds".

export const MODEL = "mars-smollm2"; // the model that is named at stops without a run

export const BUTTONS = {
  back: ["Back", "← key"],
  next: ["Next", "space bar or → key"],
  again: ["Replay", "R key"],
  live: ["Run it live", "L key"],
  notes: ["Notes", "N key: open the notes in a separate window"],
  leave: ["Exit", "Escape key"],
};

export const SENTENCES = {
  noRecording: "The recording of this stop was not loaded.",
  noNotes: "Allow pop-ups for this page to see the notes.",
  starting: "Starting…",
  failed: "The live run failed; this is a recording.",
  late: "The live run did not start within three seconds; this is a recording.",
  liveNote: "Run live, just now",
  live: "Live, on this server.",
  same: "the same text",
  ahead: "predicted ahead",
  rest: "Everything after it is predicted again, from the real text.",
  ask: "Type a prompt and press Enter",
  askName: "Prompt from the audience",
};

/** @type {Stop[]} */
export const TOUR = [
  {
    headline: "Several tokens per pass",
    says: "A token is a word or a part of one. A forward pass is one evaluation of the whole model. Plain AR writes one token per pass; MARS writes each underlined group in one pass.",
    notes:
      "Both lanes make one pass per tick. Ask the audience to watch the groups. Let the first passes play, then continue to the end. L runs the same request on this server; if it does not start within three seconds, the recording plays and says so. MARS here is the base model with an adapter on mask positions, plus prompt lookup (striped tokens).",
    scene: { kind: "race", recording: "palindrome", isLive: true, beats: [{ until: 3 }, { until: "end" }] },
  },
  {
    headline: "Fewer passes for the same text",
    says: "Passes are what the method saves. A pass that predicts ahead does more work, so the time falls by less.",
    notes:
      "These figures are from the run that the audience has just seen, live or recorded. The speed is measured too; it is not reported if the machine was busy.",
    scene: { kind: "figure", recording: "palindrome" },
  },
  {
    headline: "It stops when it isn't sure",
    says: "MARS proposes several tokens per pass, each with a confidence. They are accepted from left to right until one falls below the threshold τ (tau).",
    notes:
      "The bars are the model's own confidences in that pass; the line is τ. Everything after the first rejected token is predicted again.",
    scene: {
      kind: "race",
      recording: "dial-70",
      isAlone: true,
      beats: [{ until: "refusal" }, { until: "refusal", why: true }],
    },
  },
  {
    headline: "A lower τ breaks the text. Lossless repairs it",
    says: "A lower τ accepts more tokens, and more mistakes. Lossless verifies each token against plain AR.",
    notes:
      "Turn the dial with the space bar or by hand: 0.95, 0.7, 0.5, then lossless. The frame marks the first difference from AR. Pause at 0.5, where everybody can see that the text is broken.",
    scene: { kind: "dial", recordings: ["dial-95", "dial-70", "dial-50", "dial-lossless"] },
  },
  {
    headline: "Not every text gets faster",
    says: "Free prose is hard to predict, above all for a small model: fewer tokens per pass, and no time saved. The text still equals AR's.",
    notes: "Say this before anybody asks. The page shows everything that was measured, including failures.",
    scene: {
      kind: "race",
      recording: "rewrite",
      clock: "seconds",
      isLive: true,
      beats: [{ until: 18 }, { until: "end" }],
    },
  },
  {
    headline: "Your turn",
    says: "Call out a prompt, or pick one. It runs here and now, lossless, next to plain AR.",
    notes:
      "Type a suggested prompt and press Enter. The three suggestions were tested. If the server does not respond, the recording stays on screen. Press Escape to leave; the page returns to its state before the talk.",
    scene: {
      kind: "ask",
      recording: "palindrome",
      prompts: [
        "What is photosynthesis? Explain it in simple words.",
        "What is half of 60? Explain it step by step.",
        "List three tips for writing a good email.",
      ],
      beats: [{ until: "end" }],
    },
  },
];
