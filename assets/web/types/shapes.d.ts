// Types of values that functions of one module pass to each other.

// The compared parts of two lists: from a to endA in the first, from b to endB in the second.
interface Box {
  a: number;
  b: number;
  endA: number;
  endB: number;
}

type Add = (kind: string, a: number, b: number, num: number) => void;

type Side = import("../views/batch/side.js").Side;
type Row = import("../views/batch/side.js").Row;

interface RowCell {
  forward: number;
  count: number;
  wait: string;
  isCommit: boolean;
  committed: number;
  filling: number;
  scratch: number;
  text: string;
  end: string;
}

interface BatchTotals {
  tokens_per_second: number;
  effective_tpf: number;
  idle_share: number;
  counted_forwards: number;
  num_commits: number;
  peak_cache_bytes: number;
  num_looped?: number;
}

// The server's answer to an imported trace: its lines and its owner's notes, or an error message.
type Judge = (text: string) => Promise<{ lines?: string[]; pin?: Partial<PinRecord>; error?: string } | null>;

interface Alignment {
  own: Set<number>;
  missing: Set<number>;
  toBase: Int32Array;
  near: Int32Array;
  fromBase: Int32Array;
}

interface AskDetail {
  kind: string;
  lane: { name: string } | string;
  token: number;
  id: number;
  settings: Partial<Settings>;
}

// A request to run a prompt with given settings, which does not refer to a displayed run.
interface WayDetail {
  kind: "way";
  prompt: string;
  checkpoint: string;
  settings: Settings;
  limit?: number; // token limit, if it is not the page's
  isKept?: boolean;
}

interface FrontierPoint {
  name: string;
  checkpoint: string;
  settings: Settings;
  quality: { value: number; low: number; high: number };
  tpf: { value: number; low: number; high: number };
  speed: { value: number; low: number; high: number } | null; // tokens per second relative to plain AR's
}

interface FrontierSet {
  title: string;
  checkpoint: string;
  quality: "accuracy" | "agreement";
  prompt: string;
  source: string;
  points: FrontierPoint[];
}

// A prompt that a method answers badly, with the reason.
interface FrontierFailure extends Omit<WayDetail, "kind"> {
  title: string;
  why: string;
}

interface FrontierMark {
  point: FrontierPoint;
  x: number;
  y: number;
  low: number;
  high: number;
  isBest: boolean;
}

// The point of the visitor's run. y: quality in percent, NaN if unknown. place: index of the first token that differs
// from AR's text, -1 if there is none or it is unknown.
interface OwnMark {
  x: number;
  y: number;
  place: number;
  isSame: boolean;
  loop: string;
}

interface PaperCurve {
  checkpoint: string;
  benchmark: string;
  block_size: number;
  points: { tau: number; accuracy: number; tpf: number }[];
}

interface PaperCurves {
  source: string;
  curves: PaperCurve[];
}

interface FrontierPicture {
  marks: FrontierMark[];
  own: OwnMark | null;
  curves: PaperCurve[];
  axis: string;
  across: string; // title of the horizontal axis
}

interface Margin {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

// The position of a point's label in a chart.
interface LabelBox {
  left: number;
  right: number;
  at: number;
}

interface PlaneScale {
  x(value: number): number;
  y(value: number): number;
}

interface Order {
  asked: string;
  isKept?: boolean; // whether the values of the controls are restored later (giveBack in views/page/page.js)
  checkpoint: string;
  settings: Partial<Settings>;
  view: string[] | null; // names of the lanes; null: as chosen in the controls
}

// Passes of a text that are hidden and shown together. cut: how many of them are shown, -1 if that is not known.
interface Group {
  node: HTMLElement;
  first: number;
  nodes: HTMLElement[][];
  cut: number;
}
