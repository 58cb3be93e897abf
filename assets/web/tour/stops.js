// What each stop of the tour says and shows. Figures are not written here: they come from recordings, and
// tests/app/test_talk.py checks that each recording shows what its stop says. A race's beats: play until a number of passes
// of the first lane, a refusal (race_scene.js) or the end; `why` shows the proposals of that pass. Races play pass by pass
// unless `clock` says seconds.

export const MODEL = "mars-smollm2"; // whose talk it is, where a stop shows none of its runs
/** @type {Stop[]} */
export const TOUR = [
  {
    headline: "Several tokens from one forward pass",
    says: "A token is a word or a piece of one; a forward pass is one evaluation of the whole model. Plain AR needs a pass for every token. MARS, the same base with an adapter on mask positions, writes each shaded group in one.",
    notes:
      "Both lanes make one pass at each beat. Ask the room to watch the shaded groups. Let the first passes play, then go on to the end. L runs the same request on this server; if it does not begin within three seconds, the recording plays and says so.",
    scene: { kind: "race", recording: "palindrome", isLive: true, beats: [{ until: 3 }, { until: "end" }] },
  },
  {
    headline: "What that makes of the time",
    says: "Passes first, then seconds, of the run just shown. A pass that also proposes and checks takes longer than a plain one; reading the prompt is left out of both.",
    notes:
      "These are the figures of the run that the room has just seen, live or recorded. On a GPU, where further positions are nearly free, seconds follow passes more closely than on these processor cores.",
    scene: { kind: "figure", recording: "palindrome" },
  },
  {
    headline: "Turn τ down: it breaks. Lossless heals it",
    says: "τ is how sure the model must be of a token to keep it. Lossless checks every token against AR instead.",
    notes:
      "Turn the dial with the space bar or by hand: 0.95, 0.7, 0.5, then lossless. The mark is where the text leaves AR's. Stay at 0.5 for a moment: everybody sees that it is broken.",
    scene: { kind: "dial", recordings: ["dial-95", "dial-70", "dial-50", "dial-lossless"] },
  },
  {
    headline: "How far one can go",
    says: "Each mark is a way to decode: to the right fewer passes, upwards more answers that are AR's own, to the token. Lossless stands at the top.",
    notes:
      "Diamonds are lossless; the circle keeps what it is sure of and checks nothing. Filled is the way that no other beats in both. The Frontier tab has the table, and each point opens as a run.",
    scene: { kind: "frontier" },
  },
  {
    headline: "It stops where it is not sure",
    says: "The model proposes several tokens in each pass, with a confidence each. They are taken from left to right until the first one below the threshold τ.",
    notes:
      "The bars are the model's own confidences in that pass; the line is τ. What comes behind the first refusal is asked again.",
    scene: {
      kind: "race",
      recording: "dial-70",
      isAlone: true,
      beats: [{ until: "refusal" }, { until: "refusal", why: true }],
    },
  },
  {
    headline: "Not every text gets faster",
    says: "Free prose is hard to foresee, for a small model most of all: fewer groups, and drafts that cost time. The text is AR's all the same.",
    notes: "Say it before somebody asks. The Frontier tab has what was measured, the failures too.",
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
    says: "Name a prompt: it is run here, now, lossless, beside plain AR.",
    notes:
      "Type what somebody calls out and press Enter. Should the server not answer, the recording stays. Leave with Escape: the page is as it was before the talk.",
    scene: { kind: "ask", recording: "palindrome", beats: [{ until: "end" }] },
  },
];
