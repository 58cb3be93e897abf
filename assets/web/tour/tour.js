// The tour: what each stop says and shows. Its figures are not written here: they come from recordings.
// A race's beats: play until a number of forwards of the first lane, a refusal (race_scene.js) or the end; `why` shows
// the proposals of that forward.
// A picture's beats are what its scene understands (scenes.js).

/** @type {Stop[]} */
export const TOUR = [
  {
    headline: "Several tokens from one forward pass",
    says: "A token is a word or a piece of one; a forward pass is one evaluation of the whole model. Plain AR needs a pass for every token. MARS, the same model, writes each shaded group in one.",
    scene: { kind: "race", recording: "python", isLive: true, beats: [{ until: 3 }, { until: "end" }] },
  },
  {
    headline: "What that makes of the time",
    says: "Tokens per second of MARS over those of plain AR, in the run just shown; reading the prompt is left out of both.",
    scene: { kind: "figure", recording: "python" },
  },
  {
    headline: "It stops where it is not sure",
    says: "The model proposes several tokens in each pass, with a confidence each. They are taken from left to right until the first one below the threshold τ.",
    scene: {
      kind: "race",
      recording: "tau-moved",
      isAlone: true,
      beats: [{ until: "refusal" }, { until: "refusal", why: true }],
    },
  },
  {
    headline: "One knob: the threshold τ",
    says: "A lower τ takes more from each forward and risks more of it.",
    scene: { kind: "picture", picture: "tau", beats: [{ tau: 0.95 }, { tau: 0.8 }, { tau: 0.5 }, { tau: 1 }] },
  },
  {
    headline: "Lossless: AR's text, token for token",
    says: "Only what AR confirms is written. Same text on both sides, fewer forwards on the left.",
    scene: { kind: "race", recording: "lossless", isLive: true, beats: [{ until: 4 }, { until: "end" }] },
  },
  {
    headline: "Checked at no extra forward",
    says: "Drafts come back as real tokens, so the next forward also says what AR would have written in their place.",
    scene: { kind: "picture", picture: "lossless", beats: [{ mismatch: 0 }, { mismatch: 1 }] },
  },
  {
    headline: "Not every text gets faster",
    says: "Free prose is hard to foresee, for a small model most of all: one token per forward, and masks that cost time.",
    scene: { kind: "race", recording: "tale", beats: [{ until: 18 }, { until: "end" }] },
  },
  {
    headline: "Your turn",
    says: "Leave with Escape, type a prompt and press Run. Move τ and B while it writes.",
    scene: {
      kind: "words",
      lines: [
        "One checkpoint, no new parameters, no second model.",
        "Several tokens from a forward wherever the text can be foreseen.",
        "Lossless where the text must be AR's own.",
      ],
    },
  },
];
