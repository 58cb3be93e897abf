// Events of a trace, and what a lane makes of them. The server's side: mars_runtime/trace.py.

// Events of a trace.

interface Settings {
  method: string;
  tau: number;
  block_size: number | "auto";
  metric: string;
  lossless: boolean;
  groups: string;
  lookup: boolean;
  draft?: string; // later than the first traces
  masked?: string;
  max_new_tokens: number;
  temperature: number;
  top_p: number;
  threshold: string;
  target: number;
  seed: number;
}

type Vocabulary = Record<string, string>;

interface HeaderEvent {
  type: "header";
  settings: Settings;
  vocabulary?: Vocabulary;
  prompt?: string;
  prompt_ids: number[];
  num_given?: number;
  checkpoint: string;
  hardware: string;
  dtype: string;
  threads: number;
  date: string;
  versions?: Record<string, string>;
  slot_bytes?: number;
  history?: { prompt: string; tokens: number[] }[];
  num_left_out?: number;
  room?: number;
}

interface PrefillEvent {
  type: "prefill";
  seconds: number;
  cache_bytes?: number;
  num_reused?: number; // prompt tokens that earlier runs had left and that were not computed again
}

// A token, how sure the model was of it, and [token, probability] of the next ones.
type Proposal = [id: number, confidence: number, runnersUp?: [id: number, p: number][]];

interface RowStep {
  row: number;
  start: number;
  cursor: number;
  num_pending: number;
  num_fed: number;
  proposals: Proposal[];
  accepted: number[];
  stop: string;
  num_drafted?: number;
  block_size?: number;
  groups?: number[];
  looked_up?: number[];
  guessed?: number[];
  num_draft_forwards?: number;
  taken?: number[];
  threshold?: number;
  checks?: [id: number, p: number][];
  settings?: Partial<Settings>;
}

interface StepEvent {
  type: "step";
  seconds: number;
  rows: RowStep[];
  vocabulary?: Vocabulary;
  commit?: boolean;
  idle?: [row: number, wait: string, committed: number, filling: number, fed: number][];
}

interface EndEvent {
  type: "end";
  reason: string;
  message?: string;
}

type TraceEvent = HeaderEvent | PrefillEvent | StepEvent | EndEvent;

// What a lane holds.

// Seconds of decoding, from where to where.
interface Span {
  from: number;
  to: number;
}

// Tokens from `first` on that one forward would have brought under another threshold.
interface LensGroup {
  first: number;
  count: number;
  isGuess: boolean;
  isFirst: boolean;
}

type Lane = import("../core/trace.js").Lane;
type Playhead = import("../core/playhead.js").Playhead;

interface Step {
  index: number;
  first: number;
  count: number;
  proposals: Proposal[];
  drafted: number;
  settings: Settings;
  blockSize: number;
  stop: string;
  seconds: number;
  clock: number;
  cursor: number;
  pending: number;
  fed: number;
  groups: number[];
  lookedUp: number[];
  guessed: number[];
  draftForwards: number;
  taken: number[] | null;
  tau: number;
  isCommit: boolean;
}

interface Token {
  id: number;
  text: string;
  step: Step;
  position: number;
  isEnd: boolean;
  joins: number;
  joined: string;
  confidence: number | null;
  check?: { id: number; p: number };
  rest?: string;
}

interface Move {
  step: number;
  until: number;
  token: number;
  settings: Settings;
  before: Settings;
}

interface End {
  reason: string;
  message: string;
}

// How the texts of two lanes compare.
interface Compared {
  place: number;
  isShown: boolean;
  isSame: boolean;
}

interface Speedup {
  kind: string;
  ratio: number;
  low: number;
  high: number;
  limit: number;
}

interface Timed {
  tokens: number;
  seconds: number[];
}
