// Texts and content of each stop of the tour. Figures are not written here: they come from recordings, and
// tests/app/test_talk.py checks that each recording shows what its stop says. A race's beats: play until a number of
// passes of the first lane, a refusal (race_scene.js) or the end; `why` shows the proposals of that pass. Races play
// pass by pass unless `clock` says seconds.

export const MODEL = "mars-smollm2"; // the tour's model, for stops without a run
/** @type {Stop[]} */
export const TOUR = [
  {
    headline: "Several tokens from one forward pass",
    says: "A token is a word or a part of one. A forward pass is one evaluation of the whole model. Plain AR needs a pass for every token. MARS is the same base model with an adapter on mask positions; it writes each shaded group in one pass.",
    notes:
      "Both lanes make one pass per beat. Ask the audience to watch the shaded groups. Let the first passes play, then continue to the end. L runs the same request on this server; if it does not start within three seconds, the recording plays and says so.",
    scene: { kind: "race", recording: "palindrome", isLive: true, beats: [{ until: 3 }, { until: "end" }] },
  },
  {
    headline: "What that means in seconds",
    says: "Passes first, then seconds, for the run just shown. A pass that also drafts and verifies takes longer than a plain one. Reading the prompt is not counted in either.",
    notes: "These figures are of the run that the audience has just seen, live or recorded.",
    scene: { kind: "figure", recording: "palindrome" },
  },
  {
    headline: "Lower τ and the text breaks. Lossless repairs it",
    says: "τ is how sure the model must be of a token to accept it. Lossless verifies every token against AR instead.",
    notes:
      "Turn the dial with the space bar or by hand: 0.95, 0.7, 0.5, then lossless. The mark shows the first difference from AR. Stay at 0.5 for a moment: everybody can see that the text is broken.",
    scene: { kind: "dial", recordings: ["dial-95", "dial-70", "dial-50", "dial-lossless"] },
  },
  {
    headline: "Speed against agreement",
    says: "Each mark is one setting. Further right means fewer passes; higher means more answers that equal AR's, token for token. Lossless is at the top.",
    notes:
      "Diamonds are lossless. Circles accept what they are sure of and verify nothing. A filled mark is a setting that no other one beats in both. The Frontier tab has the table, and each point opens as a run.",
    scene: { kind: "frontier" },
  },
  {
    headline: "It stops where it is not sure",
    says: "The model proposes several tokens in each pass, with a confidence each. They are taken from left to right until the first one below the threshold τ.",
    notes:
      "The bars are the model's own confidences in that pass; the line is τ. Everything after the first refusal is predicted again.",
    scene: {
      kind: "race",
      recording: "dial-70",
      isAlone: true,
      beats: [{ until: "refusal" }, { until: "refusal", why: true }],
    },
  },
  {
    headline: "Not every text gets faster",
    says: "Free prose is hard to predict, for a small model most of all: there are fewer groups, and drafts cost time. The text still equals AR's.",
    notes: "Say this before somebody asks. The Frontier tab shows all that was measured, failures included.",
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
    says: "Suggest a prompt: it runs here and now, lossless, next to plain AR.",
    notes:
      "Type what somebody suggests and press Enter. If the server does not answer, the recording stays. Leave with Escape: the page is as it was before the talk.",
    scene: { kind: "ask", recording: "palindrome", beats: [{ until: "end" }] },
  },
];
