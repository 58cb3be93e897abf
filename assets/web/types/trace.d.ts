// Types of lanes, which are built from the events of a trace (wire.d.ts).

type Vocabulary = Record<string, string>;

// A span on the clock that a view uses.
interface Span {
  from: number;
  to: number;
}

// Tokens, from index `first` on, that one pass would have emitted with another threshold.
interface LensGroup {
  first: number;
  count: number;
  isGuess: boolean;
  isFirst: boolean;
}

type Lane = import("../core/trace.js").Lane;
type Playhead = import("../core/playhead.js").Playhead;

interface Clock {
  name: "passes" | "seconds";
  begin(step: Step): number;
  end(step: Step): number;
  axis: string;
  write(at: number): string;
}

// The source of a token, as in mars_runtime/runs/annotations.py.
type Source = "ar" | "masks" | "look-up" | "draft model" | "guesses";

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
  declined: number[] | null;
  taken: number[] | null;
  tau: number;
  sources: Source[]; // source of each accepted token
  spread: number; // relative uncertainty of the mean pass time up to here
}

interface Token {
  id: number;
  text: string; // begins at the start of a grapheme cluster
  step: Step;
  position: number;
  isEnd: boolean;
  joins: number; // index of the token with the cluster that this token continues, or -1
  joined: string; // the part of this token that was appended to that token's text
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
  rounds: number;
}

// What a race shows as its result (core/result.js). figures: each with a value, what it is, and the numbers behind it.
interface RaceResult {
  kind: "none" | "running" | "stopped" | "alone" | "same" | "different";
  first: string;
  rest: string;
  figures: { key: string; value: string; name: string; numbers: string }[];
}

interface Timed {
  tokens: number;
  seconds: number;
  spread: number;
}

// A comparison over rounds, computed by the server. rate: tokens per second (median, lowest, highest).
interface RoundsLine {
  kind: string;
  ratio: number | null;
  low: number | null;
  high: number | null;
  limit: number | null;
  rounds: number;
  rate: [median: number, low: number, high: number];
}
