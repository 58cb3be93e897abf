// Shapes that several functions of one module hand each other.

interface MaskSlot {
  isNoisy: boolean;
  position: number;
  block: number;
}

// What of two lists is compared: from a to endA, from b to endB.
interface Box {
  a: number;
  b: number;
  endA: number;
  endB: number;
}

type Add = (kind: string, a: number, b: number, num: number) => void;
// What several answers have in common: tokens from `from` to `to`, not included; members: indices of the answers.
interface AnswerNode {
  from: number;
  to: number;
  members: number[];
  children: AnswerNode[];
}

// A complete answer.
interface Answer {
  seed: number;
  lane: Lane;
}

type KindToken = Pick<Token, "text" | "joins" | "isEnd"> & { step: { count: number } };
type Judged = ReturnType<typeof import("../folds/statistics.js").judge>;

interface Verdict {
  place: number;
  token: Token;
  ar: { id: number; p: number | null };
  agrees: boolean;
}

interface PlaceEntry {
  place: number;
  step: number;
  mine: string;
  theirs: string;
  p: number | null;
}

interface ChartEntry {
  node: PlotNode;
  caption: HTMLElement;
  clock?: Clock; // if the chart does not follow the chosen one
  overlay: import("../charts/charts.js").Overlay;
  isInSight: boolean; // or a part of it
  isPlotted: boolean;
  isTall: boolean; // zoomed by the reader in height
  config?: Json;
}

// share: of the room, NaN for none; n: of the ramp; mark: a line at a share.
interface BarItem {
  label: string;
  share: number;
  top: string;
  value: string;
  say: string;
  sub?: string;
  n?: number;
  mark?: number | null;
  isVoid?: boolean;
}

interface PanelKind {
  id: string;
  title: string;
  new (element: HTMLElement, view: View): { draw(): void };
}

interface Tab {
  Kind: PanelKind;
  button: HTMLButtonElement;
  element: HTMLElement;
  panel: { draw(): void } | null;
}

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

// The server's answer on a trace that somebody brings: its lines and what its owner said of it, or a sentence.
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

// A way of decoding that is to be opened as a run: no run is on show that it belongs to.
interface WayDetail {
  kind: "way";
  prompt: string;
  checkpoint: string;
  settings: Settings;
  limit?: number; // of tokens, where not the page's own
  isKept?: boolean;
}

interface FrontierPoint {
  name: string;
  checkpoint: string;
  settings: Settings;
  quality: { value: number; low: number; high: number };
  tpf: { value: number; low: number; high: number };
  speed: { value: number; low: number; high: number } | null; // times plain AR's tokens per second
}

interface FrontierSet {
  title: string;
  checkpoint: string;
  quality: "accuracy" | "agreement";
  prompt: string;
  source: string;
  points: FrontierPoint[];
}

// A request that goes wrong, and what to see there.
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

// y: percent, NaN where it cannot be told; place: where its text leaves AR's, -1 where it does not or nobody knows.
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
  across: string; // the horizontal axis
}

interface Margin {
  left: number;
  right: number;
  top: number;
  bottom: number;
}

// Where the label of a point stands in a chart.
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
  isKept?: boolean; // whether the controls are to be as before, once somebody says so
  checkpoint: string;
  settings: Partial<Settings>;
  view: string[] | null; // null: as the controls have them
}

interface ListedRun {
  address: string;
  title: string;
  why: string;
  settings: Settings;
  tpf: number;
  speedup: number | null;
  against: string;
  num_tokens: number;
  counts: number[];
  circumstances: string;
}

// A bar of a picture and its row in the table beside it.
interface Bar {
  node: HTMLElement;
  top: HTMLElement;
  mark: HTMLElement;
  label: HTMLElement;
  sub: HTMLElement;
  row: HTMLTableRowElement;
  cells: HTMLTableCellElement[];
}

// Forwards of a text that are hidden and shown at once; cut: how many of them are shown, -1 when not known.
interface Group {
  node: HTMLElement;
  first: number;
  nodes: HTMLElement[][];
  cut: number;
}
