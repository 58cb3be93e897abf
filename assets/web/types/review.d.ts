// Types of the Review tab. Server side: app/review/*.py, mars_runtime/review/*.py.

// Automatic checks of an answer, compared with the reference's. word: index of the first different word, null for none.
interface ReviewMark {
  is_same: boolean;
  word: number | null;
  is_looped: boolean;
  is_right: boolean | null;
  tpf: number | null;
  end: string;
  num_tokens: number;
}

// A prompt in a list. marks: checks by method, missing for a masked pair. same: whether the texts of a masked pair are
// the same.
interface ReviewListed {
  id: string;
  category: string;
  head: string;
  marks?: (ReviewMark | null)[];
  same?: boolean;
}

interface ReviewWay {
  name: string;
  checkpoint: string;
  settings: Partial<Settings> | null;
}

interface ReviewTotals {
  way: string;
  category: string;
  num_answers: number;
  tpf: number | null;
  num_same: number;
  first_word: number | null;
  num_looped: number;
  num_right: number;
  num_checked: number;
}

interface ReviewAbout {
  address: string;
  id: string;
  name: string;
  reference: number;
  ways: ReviewWay[];
  made: Json;
  marks: ReviewTotals[];
  items: ReviewListed[];
}

interface ReviewAsked {
  id: string;
  prompt: string;
  system: string;
  category: string;
  turns: [string, string][];
  reference: string;
}

// pieces: the text of each token. groups: number of tokens of each pass. otherwise: AR's token by index, where it
// differs.
interface ReviewAnswer {
  text: string;
  pieces: string[];
  groups: number[];
  otherwise: Record<string, string>;
  num_tokens: number;
  end: string;
  is_right: boolean | null;
  is_looped: boolean;
  tpf: number | null;
}

interface ReviewPrompt extends ReviewAsked {
  answers: (ReviewAnswer | null)[];
  marks: (ReviewMark | null)[];
}

interface MaskedPrompt extends ReviewAsked {
  left: string;
  right: string;
  sealed: string;
}

type Preference = "left" | "right" | "equal" | "";

// A reviewer's judgement of a pair of answers (mars_runtime/review/judgements.py). A masked judgement has `sealed`
// instead of its sides until it is revealed. set, pair, isSent: exist only in the browser.
interface JudgementRow {
  id: string;
  set: string;
  pair: string[];
  isSent: boolean;
  reviewer: string;
  item: string;
  left?: string;
  right?: string;
  sealed?: string;
  preference: Preference;
  ratings: number[];
  tags: string[][];
  note: string;
  is_masked: boolean;
  is_revealed: boolean;
  undoes: string;
  time: string;
}

type Said = Pick<JudgementRow, "preference" | "ratings" | "tags" | "note">;

// A note that is being typed; it is stored at each key press.
interface NoteDraft {
  id: string;
  note: string;
}

interface ReviewWord {
  text: string;
  from: number;
  to: number;
}

// A difference between two texts: numA words from index a in the first, and numB words from index b in the second.
interface ReviewPlace {
  kind: "different" | "missing" | "added" | "doubled";
  a: number;
  numA: number;
  b: number;
  numB: number;
}

// A piece of a text that is drawn in one style. group: index of the pass that wrote it, -1 without a trace. place:
// index of the difference that it belongs to, -1 for none. gap: index of a difference directly before the piece for
// which this text has no words.
interface ReviewRun {
  text: string;
  group: number;
  size: number;
  place: number;
  gap: number;
  otherwise: string | null;
}

interface ReviewShown {
  name: string;
  way: number;
  side: "left" | "right" | "";
  text: string;
  answer: ReviewAnswer | null;
  mark: (ReviewMark & { isReference: boolean }) | null;
}

interface ReviewFilter {
  category: string;
  agreement: string;
  judged: string;
  tag: string;
  rating: string;
  tpf: string;
  text: string;
  sort: string;
}

interface ReviewEstimate {
  value: number;
  low: number;
  high: number;
}

interface ReviewPreferred {
  way: string;
  num_prompts: number;
  num_judgements: number;
  num_identical: number;
  better: ReviewEstimate;
  equal: ReviewEstimate;
  worse: ReviewEstimate;
}

interface ReviewSaid {
  way: string;
  num_judgements: number;
  rating: ReviewEstimate | null;
  tags: Record<string, ReviewEstimate>;
}

interface ReviewFigures {
  preferences: ReviewPreferred[];
  by_category: Record<string, ReviewPreferred[]>;
  said: ReviewSaid[];
  agreement: { num_reviewers: number; num_shared: number; preference: number | null; rating: number | null };
  caution: string;
}

interface ReviewMaking {
  prompts: number;
  ways: number;
  checkpoints: string[];
  isOwner: boolean;
}

interface ReviewProgress {
  state: "making" | "paused" | "stopped" | "done" | "failed" | "gone";
  error: string;
  num_done: number;
  num_all: number;
  refused: string[];
  seconds_left: number | null;
}

// The request for a new set.
interface MakingAsked {
  prompts: string;
  system?: string;
  file: string;
  ways: string[];
  name: string;
  max_new_tokens: number;
}

// A visitor's set, as stored in the browser. asked: the request, if the set is unfinished. made, of: number of answers
// in the sealed text, and of all answers.
interface OwnSet {
  id: string;
  name: string;
  sealed: string;
  asked?: MakingAsked;
  made?: number;
  of?: number;
}

type ReviewSets = import("../core/records.js").Store<OwnSet>;
type ReviewServer = import("../views/review/server.js").Server;
type ReviewKeyed = import("../views/review/view.js").ReviewView;
