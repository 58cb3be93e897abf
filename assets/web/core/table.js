// Written by `python tools/wire_types.py` from the constants of Python.

// The decoding methods. `drafts`: what proposes tokens; `obeys`: the settings that act on the method; `isExact`:
// whether its text is always AR's.
/** @type {Record<string, MethodFacts>} */
// prettier-ignore
export const METHODS = {
  mars: { title: "MARS", obeys: ["tau", "block_size", "lossless", "mask_layout", "lookup", "tau_policy", "agreement_target"], drafts: "masks", isExact: false, isReference: false, isGuessing: false, needsDraftModel: false },
  ar: { title: "plain AR", obeys: [], drafts: "", isExact: true, isReference: true, isGuessing: false, needsDraftModel: false },
  lookup: { title: "AR + lookup", obeys: [], drafts: "prompt lookup", isExact: true, isReference: false, isGuessing: false, needsDraftModel: false },
  jacobi: { title: "Jacobi", obeys: ["block_size"], drafts: "guesses", isExact: true, isReference: false, isGuessing: true, needsDraftModel: false },
  speculative: { title: "speculative", obeys: ["tau", "block_size", "mask_layout", "lookup", "draft", "masked"], drafts: "a draft model", isExact: true, isReference: false, isGuessing: false, needsDraftModel: true },
  block_diffusion: { title: "block diffusion", obeys: ["tau", "block_size"], drafts: "blocks", isExact: false, isReference: false, isGuessing: false, needsDraftModel: false },
};

// The settings of a run. `isShown`: whether it has a control; `isSteered`: whether it can change during a run;
// `isCommon`: whether it acts on all methods.
/** @type {Record<keyof Settings, { isShown: boolean, isSteered: boolean, isCommon: boolean }>} */
// prettier-ignore
export const SETTINGS = {
  method: { isShown: false, isSteered: false, isCommon: false },
  tau: { isShown: true, isSteered: true, isCommon: false },
  block_size: { isShown: true, isSteered: true, isCommon: false },
  metric: { isShown: true, isSteered: true, isCommon: true },
  lossless: { isShown: true, isSteered: true, isCommon: false },
  max_new_tokens: { isShown: true, isSteered: false, isCommon: true },
  temperature: { isShown: true, isSteered: false, isCommon: true },
  seed: { isShown: true, isSteered: false, isCommon: true },
  mask_layout: { isShown: true, isSteered: true, isCommon: false },
  lookup: { isShown: true, isSteered: true, isCommon: false },
  draft: { isShown: false, isSteered: false, isCommon: false },
  masked: { isShown: false, isSteered: false, isCommon: false },
  top_p: { isShown: true, isSteered: false, isCommon: true },
  tau_policy: { isShown: true, isSteered: true, isCommon: false },
  agreement_target: { isShown: true, isSteered: true, isCommon: false },
  repetition_penalty: { isShown: true, isSteered: false, isCommon: true },
  stop_loops: { isShown: true, isSteered: false, isCommon: true },
  presence_penalty: { isShown: false, isSteered: false, isCommon: true },
  frequency_penalty: { isShown: false, isSteered: false, isCommon: true },
  logit_bias: { isShown: false, isSteered: false, isCommon: true },
  top_k: { isShown: false, isSteered: false, isCommon: true },
  min_p: { isShown: false, isSteered: false, isCommon: true },
  min_tokens: { isShown: false, isSteered: false, isCommon: true },
  ignore_eos: { isShown: false, isSteered: false, isCommon: true },
};

// The page's τ of each mode, until the visitor moves it.
// prettier-ignore
export const TAUS = {
  lossless: 0.3,
  unverified: 0.95,
};

// Limits for reporting a speedup, and texts for why it is not reported; see mars_runtime/runs/speedup.py.
/** @type {{ least: number, apart: number, near: number, rounding: number, slack: number, notes: Record<string, string> }} */
// prettier-ignore
export const SPEED = {
  least: 20,
  apart: 0.06,
  near: 1.1,
  rounding: 0.005,
  slack: 1.02,
  notes: { short: "too short to time: at least 20 tokens are needed", different: "different texts are not compared in time", busy: "the machine was too busy to time", same: "no clear difference in time: passes vary in duration" },
};

// Limits of a set to review. `line`, `file`: bytes of a line, and of a file that the page opens; `items`, `methods`:
// their number; `making`: prompts of a set that the page makes; `text`, `name`, `note`: characters.
// prettier-ignore
export const REVIEW = {
  line: 8000000,
  file: 256000000,
  items: 10000,
  methods: 12,
  making: 30,
  text: 200000,
  name: 80,
  note: 2000,
};

// The largest values that the server accepts. `drafts`: number of drafts that one pass verifies. `body`: bytes of a
// request, `tokens`: tokens of an answer, and `imported`: bytes of an imported run, on a server with default settings.
// `turns`: turns of a conversation.
// prettier-ignore
export const LIMITS = {
  drafts: 15,
  body: 262144,
  tokens: 512,
  imported: 4000000,
  turns: 100,
};

// The letters of tokens' sources in trace lines (mars_runtime/runs/annotations.py).
/** @type {Record<string, Source>} */
// prettier-ignore
export const SOURCE_LETTERS = {
  a: "ar",
  m: "masks",
  l: "look-up",
  d: "draft model",
  g: "guesses",
};

// Characters at the start of a cell that a spreadsheet takes for a formula.
export const COMPUTED = "=+-@\t\r\n\uff1d\uff0b\uff0d\uff20";

// The stop reasons with which a text is complete.
export const FINAL_STOPS = ["eos", "limit", "repeats"];

// The placeholder in a page's file that the page's data replaces.
export const DATA_PLACE = "@data";

// The title of a lane that continues given tokens.
export const BRANCH_TITLE = "branch";

// The names of the prompt and the controls in links.
// prettier-ignore
export const LINKED = ["agreement_target", "block_size", "checkpoint", "lanes", "lookup", "lossless", "mask_layout", "max_new_tokens", "metric", "prompt", "repetition_penalty", "seed", "stop_loops", "system", "tau", "tau_policy", "temperature", "top_p"];
