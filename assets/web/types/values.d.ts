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

interface StabilityHead extends Head {
  prompt: string;
  lane: string;
  method: string;
  temperature: number;
  seeds: number[];
}

interface LoadHead extends Head {
  question: string;
  kind: string;
  ways: { name: string; title: string }[];
  seconds: number;
  requests: number;
  budget: number | null;
  rounds?: number;
  rate?: number; // requests per second; for a curve, the highest rate
}

// A column of the table of methods. of: the column's figure, shown with its range over the rounds. Without `of`, `cell`
// returns the text. isMore: shown only with all figures.
interface LoadColumn {
  name: string;
  unit: string;
  of?: (tick: LoadTick) => number | null | undefined;
  cell?: (way: LoadWay, tick: LoadTick) => string;
  hasRange?: boolean;
  isMore?: boolean;
}

type LoadSpread = { p50: number; p99: number } | null;

interface LoadTick {
  way: string;
  over?: boolean; // whether this is the last tick of a round
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

interface LoadWay {
  name: string;
  title: string;
  ticks: LoadTick[]; // ticks of the latest round
  ended: LoadTick[]; // last tick of each finished round
  decisions: LoadDecision[];
  points: LoadPoint[];
  agreement: LoadAgreement | null;
}

interface LoadModel {
  head: LoadHead;
  about: (Partial<HeaderEvent> & { places: number }) | null;
  ways: LoadWay[];
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
  checked: number;
  differs: number;
}

interface Cell {
  name: string;
  row: GridRow | null;
  blockSize: number;
  lane: Lane;
  rounds: RoundsLine | null;
}

// The layers of a pass, as sent by the server (app/live/layers_panel.py).

interface ToldColumn {
  position: number;
  root: number | null;
  says: [id: number, p: number][];
  settled: number;
}

interface ToldLayers {
  columns: ToldColumn[];
  real: ToldColumn[];
  counted: number[];
  vocabulary: Vocabulary;
}

type LayersAnswer = ToldLayers | { error: string };
