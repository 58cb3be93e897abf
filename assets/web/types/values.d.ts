// Types of the values that the server sends to views. Server side: app/ui/views.py.

interface LaneHead {
  lane: string;
  title: string;
}

interface Head {
  run: string;
  from?: number;
  recorded?: boolean | string; // for a recorded run: when and on what it was recorded
}

interface RaceHead extends Head {
  lanes: LaneHead[];
  pace?: number;
}

interface ThroughputHead extends Head {
  rows: number;
  prompts: string[];
}

// The start of a method's part of a run. round: 0 for a live run.
interface BeginLine {
  method: string;
  title: string;
  round: number;
  of: number;
}

// What a pass wrote for a prompt. end: why the answer ended.
type PassRow = [prompt: number, count: number, text: string, end?: string];

interface TauMove {
  at: number;
  tau: number;
  block_size: number | "auto";
  lossless: boolean;
}

// Live figures after a pass, of the last two seconds. at: seconds of decoding.
interface ThroughputPoint {
  at: number;
  done: number;
  waiting: number;
  rate: number;
  tpf: number;
}

interface MeasuredSide {
  rates: number[];
  rate: [median: number, low: number, high: number];
  passes: number;
  tpf: number;
}

// A measurement, as it is shown and exported.
interface MeasuredLine {
  date: string;
  rows: number;
  prompts: string[];
  num_same: number;
  speedup: RoundsLine;
  mars: MeasuredSide;
  ar: MeasuredSide;
}

type ThroughputState = import("../views/throughput/state.js").State;

// A row of the view: the prompt that it decodes, and the pieces of the answer by pass.
interface Slot {
  prompt: number;
  pieces: { text: string; count: number }[];
  tokens: number;
  end: string;
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

interface Note {
  text: string;
  kind: string;
}

// A receiver of the lines of a value: a view.
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
}

interface Cell {
  name: string;
  row: GridRow | null;
  blockSize: number;
  lane: Lane;
  rounds: RoundsLine | null;
}

interface Estimate {
  value: number;
  low: number;
  high: number;
}

// A method that was measured on many prompts (app/ui/results.py).
interface MeasuredPoint {
  checkpoint: string;
  name: string;
  num_prompts: number;
  agreement: Estimate;
  tpf: Estimate;
  speed: Estimate | null;
}

// In pixels.
interface Size {
  width: number;
  height: number;
}

// A cell in the chart. height: agreement in percent.
interface GridMark {
  cell: Cell;
  across: Estimate;
  x: number; // the value, or beside it if another mark has the same values
  height: number;
  same: GridMark[]; // other marks with the same values
}

// What the charts of the Trade-off view show. references: AR, and AR + lookup.
interface GridState {
  rows: Cell[][];
  references: Cell[];
  points: MeasuredPoint[];
  isSpeed: boolean;
}
