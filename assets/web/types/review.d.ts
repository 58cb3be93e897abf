// Types of the Review tab: sets of answers and votes (docs/review.md).

interface ReviewServer {
  prompts(posted: string): Promise<any>; // parses a file of prompts
}

interface ReviewMethod {
  name: string;
  checkpoint: string;
  settings: Settings | null; // null for answers that were imported as text
}

interface SetHeader {
  id: string;
  name: string;
  methods: ReviewMethod[];
  made: Record<string, unknown>; // date, machine, versions and weights
}

interface ReviewAnswer {
  text: string;
  passes: number[]; // tokens of each pass
  unlike_ar: number[]; // tokens of passes with several tokens for which AR would choose another one
  is_same: boolean | null; // as plain AR's text
  is_looped: boolean | null;
  is_right: boolean | null;
  fault: string; // why there is no answer
  trace: TraceEvent[];
}

interface ReviewItem {
  id: string;
  prompt: string;
  system: string;
  category: string;
  reference: string;
  turns: string[][];
  answers: (ReviewAnswer | null)[]; // by method; null if it was not made
  key?: string; // of pinned runs: what the runs of this item have in common
}

interface ReviewSet {
  id: string;
  header: SetHeader;
  items: ReviewItem[];
}

// vote: name of the better method, "equal", "bad", or "" for a note only.
interface Vote {
  vote: string;
  note: string;
  time: string;
  is_blind: boolean;
}
