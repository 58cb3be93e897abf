// What travels to the page and through its modules: the events of a trace, the heads of the views' values, and what the
// views, panels and pictures hand each other. The server's side of it: mars_runtime/trace.py, app/components/*.py.

// --- events of a trace ---------------------------------------------------------------------------------------------

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

// --- what a lane holds -----------------------------------------------------------------------------------------------

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

type Lane = import("./core/trace.js").Lane;
type Playhead = import("./core/playhead.js").Playhead;

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

// --- values of the views ---------------------------------------------------------------------------------------------

interface LaneHead {
  lane: string;
  title: string;
}

interface Head {
  run: string;
  from?: number;
}

interface RaceHead extends Head {
  lanes: LaneHead[];
  pace?: number;
  recorded?: boolean | string;
}

interface SideHead {
  side: string;
  method: string;
  title: string;
}

interface BatchHead extends Head {
  sides: SideHead[];
  prompts: string[];
}

interface GridRow {
  tau: number;
  lossless: boolean;
}

interface GridHead extends Head {
  prompt: string;
  rows: GridRow[];
  columns: number[];
}

interface LoadHead extends Head {
  question: string;
  kind: string;
  ways: { name: string; title: string }[];
  seconds: number;
  requests: number;
  budget: number | null;
}

type LoadSpread = { p50: number; p99: number } | null;

interface LoadTick {
  way: string;
  at: number;
  tokens: number;
  num_arrived: number;
  num_done: number;
  queue: number;
  rows: number;
  tokens_per_second: number;
  requests_per_second: number;
  tpf: number | null;
  ttft: LoadSpread;
  tpot: LoadSpread;
  latency: LoadSpread;
  in_time: number | null;
}

interface LoadDecision {
  at: number;
  queue: number;
  level: number;
  tau: number;
  block_size: number | "auto";
  lossless: boolean;
  late: number;
}

interface LoadPoint {
  offered: number;
  answered: number;
  ttft: LoadSpread;
  latency: LoadSpread;
}

interface LoadAgreement {
  share: number | null;
  num_requests: number;
  sampled: boolean;
}

interface LoadFleet {
  num_machines: number;
  p50: number;
  p99: number;
}

interface LoadDay {
  title: string;
  alone: number;
  full: number;
  places: number;
  busiest: number;
  hour_seconds: number;
  fleets: LoadFleet[];
}

interface LoadWay {
  name: string;
  title: string;
  ticks: LoadTick[];
  decisions: LoadDecision[];
  points: LoadPoint[];
  agreement: LoadAgreement | null;
}

// What has been told of a load so far.
interface LoadModel {
  head: LoadHead;
  about: (Partial<HeaderEvent> & { places: number }) | null;
  day: LoadDay | null;
  ways: LoadWay[];
}

interface Note {
  text: string;
  kind: string;
}

// What reads a value of lines: a view.
interface Sink<H extends Head = Head> {
  start(head: H): void;
  line(tag: string, data: unknown, text: string): void;
  clear(): void;
}

interface Run {
  id: string;
  head: RaceHead;
  pace: number;
  note: Note;
  fault: string;
  lanes: Lane[];
  recorded?: boolean | string;
  checked: number;
  differs: number;
}

interface Cell {
  name: string;
  row: GridRow | null;
  blockSize: number;
  lane: Lane;
}

// --- folds -----------------------------------------------------------------------------------------------------------

interface ProposalRow {
  place: number;
  id: number;
  confidence: number;
  runnersUp: [id: number, p: number][];
  draft: number | undefined;
  fate: string;
  token: Token | undefined;
  verdict: string | null;
}

interface WhatIfCell {
  index: number;
  isLossless: boolean;
  then: number;
  now: number;
  same: number;
  other: number;
  unknown: number;
  checked: number;
  wrong: number;
  agreedThen: number;
  agreedNow: number;
  gain: number;
}

type WhatIf = ReturnType<typeof import("./panels/folds/whatif.js").whatIf>;
type CacheState = ReturnType<typeof import("./panels/folds/slots.js").cacheAt>;
type Slot = ReturnType<typeof import("./panels/folds/slots.js").slotsAt>[number];
type Fed = ReturnType<typeof import("./panels/folds/slots.js").fedBy>[number];
type SlotRun = ReturnType<typeof import("./explain/slots.js").slotRun>;
type SlotForward = SlotRun["forwards"][number];
type SlotMoment = ReturnType<typeof import("./explain/slots.js").momentOf>;
type Segment = { kind: string; a: number; b: number; num: number; isAhead?: boolean };

// --- what views and panels ask of each other -------------------------------------------------------------------------

interface Focus {
  lane: Lane;
  step: number;
}

// A race view, as its panels, menus and player see it.
interface View {
  root: HTMLElement;
  run: Run; // panels are drawn while there is one
  selected: Focus | null;
  playhead: Playhead;
  focus: Focus;
  shown(lane: Lane): Lane;
  choose(lane: Lane | null, step?: number): void;
  goTo(lane: Lane, step: number): void;
  canAsk(kind: string): boolean;
  ask(kind: string, data: object): boolean;
  lens: import("./panels/lens/lens.js").Lens;
  paneOf(lane: Lane): import("./panels/text/panes.js").Pane;
  schedule(): void;
}

// Where a card stands: an element, or a box on the page.
type Anchor = Element | { left: number; right: number; top: number; bottom: number };
type RaceView = import("./views/race/view.js").RaceView;
type TokenView = import("./panels/text/text.js").TokenView;

interface TextReport {
  token(view: TokenView, index: number, anchor: Element, how: string): void;
  leave(view: TokenView): void;
  choose(lane: Lane, step: number): void;
}

interface ChartReport {
  zoom(): void;
  step(lane: Lane, index: number, anchor: Anchor): void;
  leave(): void;
  choose(lane: Lane, step: number): void;
}

interface Recording {
  note: string;
  prompt: string;
  verdicts: Record<string, boolean>;
  lanes: { name: string; title: string; lines: string[] }[];
}

interface FileOffer {
  text: string;
  hint: string;
  make(): NamedBlob | Promise<NamedBlob>;
}

interface NamedBlob {
  name: string;
  blob: Blob;
}

interface Offer {
  label: string;
  files: FileOffer[];
}

interface PinRecord {
  id: string;
  pinned: number;
  name: string;
  note: string;
  rating: number;
  verdict: boolean | null;
  isImported: boolean;
  number?: number; // which pinned run it was; not known of those pinned before they were counted
  colour?: number; // its place in the palette
  lines: string[];
}

// Where a run left another.
interface Branch {
  parent: string;
  token: number;
  taken: string;
  instead: string;
}

type Pin = import("./views/compare/tray.js").Pin;
type Tray = import("./views/compare/tray.js").Tray;

// --- the browser and plotly ------------------------------------------------------------------------------------------

interface Colours {
  ink: string;
  card: string;
  surface: string;
  muted: string;
  grid: string;
  line: string;
  warm: string;
  mars: string;
  ar: string;
  runs: string[]; // by place in the palette, plain AR's first
  bars: string[];
  font: string;
  isCoarse: boolean;
}

// Specifications are plain JSON to us; what plotly makes of them is its own affair.
type Json = { [name: string]: any };

interface Figure {
  data: Json[];
  layout: Json;
}

interface PlotAxis {
  range: number[];
  _length: number;
  _offset: number;
  l2p(value: number): number;
  p2l(pixels: number): number;
}

interface PlotNode extends HTMLDivElement {
  _fullLayout: { xaxis: PlotAxis; yaxis: PlotAxis } & { [name: string]: PlotAxis }; // once it is plotted
  on(event: string, listener: (event: Json) => void): void;
}

interface Plotly {
  Icons: { home: object };
  newPlot(node: Element, data: Json[], layout: Json, config: Json): Promise<unknown>;
  react(node: Element, data: Json[], layout: Json, config: Json): Promise<unknown>;
  relayout(node: Element, changes: Json): Promise<unknown>;
  purge(node: Element): void;
  toImage(figure: Json, options: Json): Promise<string>;
}

// The one global of ours: what the bundle exports, and what the page adds (views/page/page.js).
interface Mars {
  answers?: string[];
  [name: string]: unknown;
}

// How a view asks its page for what a trace cannot give.
interface DocumentEventMap {
  "mars-ask": CustomEvent<any>;
}

interface Window {
  mars: Mars;
  Plotly?: Plotly;
  gradio_config?: { root?: string };
}

// An element keeps its view, a token or cell what it stands for.
interface Element {
  lineView?: import("./core/line_view.js").LineView & Partial<View>;
  compareView?: import("./views/compare/view.js").CompareView;
  pictures?: Record<string, unknown>;
  rvToken?: number;
  rvForward?: number;
  rvState?: string;
}

// --- shapes that several functions of one module hand each other -----------------------------------------------------

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
type KindToken = Pick<Token, "text" | "joins" | "isEnd"> & { step: { count: number } };
type Judged = ReturnType<typeof import("./panels/folds/judged.js").judge>;

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
  overlay: import("./panels/charts/overlay.js").Overlay;
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

type Side = import("./views/batch/side.js").Side;
type Row = import("./views/batch/side.js").Row;

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
  num_forwards: number;
  num_commits: number;
  peak_cache_bytes: number;
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
}

interface FrontierPoint {
  name: string;
  checkpoint: string;
  settings: Settings;
  quality: { value: number; low: number; high: number };
  tpf: { value: number; low: number; high: number };
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
}

interface FrontierScale {
  x(value: number): number;
  y(value: number): number;
}

interface Order {
  asked: string;
  settings: Partial<Settings>;
  view: string[];
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
  room: HTMLElement;
  fill: HTMLElement;
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

// --- the tour --------------------------------------------------------------------------------------------------------

// What becomes of a run that the tour starts on the page behind it.
interface LiveReport {
  begin(lanes: Lane[]): void;
  draw(isOver: boolean): void;
  fail(sentence: string): void;
}

interface Beat {
  until?: number | "refusal" | "end";
  why?: boolean;
  tau?: number;
  mismatch?: number;
}

interface SceneSpec {
  kind: string;
  recording?: string;
  isLive?: boolean;
  isAlone?: boolean;
  beats?: Beat[];
  picture?: string;
  lines?: string[];
}

interface Scene {
  beats: Beat[];
  canLive?: boolean;
  isPlaying?: boolean;
  beat(index: number, isPlayed: boolean): void;
  goLive?(): void;
  leave(): void;
}

interface Stop {
  headline: string;
  says: string;
  scene: SceneSpec;
}

// What a beat of the tour does with a picture of How it works.
interface Picture {
  setTau(tau: number): void;
  seek(moment: number): void;
  tellingMismatch(): number;
}

// --- the conversation ------------------------------------------------------------------------------------------------

// Of an answer. ids, texts: by lane; perForward: of the main lane; used: tokens of prompt and answer; room: that they may
// have; most: that an answer may take.
interface Told {
  checkpoint: string;
  ids: Record<string, number[]>;
  texts: Record<string, string>;
  perForward: number;
  differs: boolean;
  used: number;
  room: number;
  most: number;
}

// parent: the turn before; next: the one behind it in the branch in force; value: by which a race view shows it, "" while
// it runs and when it is let go.
interface Turn {
  parent: Turn | null;
  next: Turn | null;
  prompt: string;
  run: string;
  isOver: boolean;
  value: string;
  told: Told | null;
}

// A turn over a reload; parent, next: places among the turns, -1 for none.
type StoredTurn = Pick<Turn, "prompt" | "run" | "told" | "value"> & { parent: number; next: number };

// before: the run on show when it was asked.
interface Expected {
  parent: Turn | null;
  prompt: string;
  before: string;
}

interface Going {
  turn: Turn;
  run: Run;
}

interface TurnState {
  isShown: boolean;
  isEdited: boolean;
  isBusy: boolean;
  isOwn: boolean;
  besides: Turn[];
}

interface TurnActions {
  show(turn: Turn): void;
  edit(turn: Turn | null): void;
  again(turn: Turn): void;
  send(turn: Turn, prompt: string): void;
}

// --- Compare and the grid --------------------------------------------------------------------------------------------

type PinRow = import("./views/compare/rows.js").Row;

// What a row of the tray tells the view.
interface RowReport {
  change(pin: Pin, changes: Partial<PinRecord>): void;
  tick(pin: Pin, isOn: boolean): void;
  open(pin: Pin): void;
  remove(pin: Pin): void;
}

// A text beside others; own .. fromBase as `alignment` has it.
interface TextPane extends Alignment {
  lane: Lane;
  element: HTMLElement;
  parts: Record<string, HTMLElement>;
  view: TokenView;
  text: HTMLElement;
  marked: HTMLElement[];
  lit: HTMLElement | null;
}

// What a grid is coloured by.
type Measure = "tpf" | "agreement" | "speed";

interface CellParts {
  node: HTMLElement;
  tpf: HTMLElement;
  agreement: HTMLElement;
  ratio: HTMLElement;
  speed: HTMLElement;
  mark: HTMLElement;
  differs: HTMLElement;
  verdict: HTMLElement;
}

// How a cell and its point look. level: of the ramp, 0 for none; mark: "all", "row" or ""; colour: its run's place in the palette, null where
// no other view shows it.
interface CellLook {
  level: number;
  mark: string;
  isOpened: boolean;
  colour: number | null;
}

type GridScale = ReturnType<typeof import("./views/grid/frontier_shapes.js").scaleOf>;

interface GridPoint {
  cell: Cell;
  x: number;
  y: number;
}

// The nodes of a row of a batch.
interface RowLane {
  row: Row;
  node: HTMLElement;
  strip: HTMLElement;
  slots: HTMLElement;
  state: HTMLElement;
  text: HTMLElement;
  tokens: HTMLElement;
  verdict: HTMLElement;
  parts: HTMLElement[];
  drawn: number;
}
