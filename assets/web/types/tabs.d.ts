// The tour, the conversation, Compare and the grid.

// The tour.

// What becomes of a run that the tour starts on the page behind it.
interface LiveReport {
  begin(lanes: Lane[]): void;
  draw(isOver: boolean): void;
  fail(sentence: string): void;
}

interface Beat {
  until?: number | "refusal" | "end";
  why?: boolean;
}

interface SceneSpec {
  kind: string;
  recording?: string;
  isLive?: boolean;
  isAlone?: boolean;
  clock?: "passes" | "seconds";
  beats?: Beat[];
  recordings?: string[];
  prompts?: string[];
}

// A run as a stop shows it, for the stop behind it to speak of.
interface ShownRun {
  lanes: Lane[];
  note: string;
}

interface Scene {
  beats: Beat[];
  canLive?: boolean;
  isPlaying?: boolean;
  isLive?: boolean; // whether a live run is shown in place of the recording
  model?: string;
  told?: ShownRun;
  beat(index: number, isPlayed: boolean): void;
  goLive?(): void;
  leave(): void;
}

interface Stop {
  headline: string;
  says: string;
  notes: string;
  scene: SceneSpec;
}

// The conversation.

// Of an answer. ids, texts: by lane; perForward: of the main lane; used: tokens of prompt and answer; room: that they may
// have; most: that an answer may take.
interface Told {
  checkpoint: string;
  ids: Record<string, number[]>;
  texts: Record<string, string>;
  perForward: number;
  loop?: string; // where the text repeats itself
  differs: boolean;
  tokens: number; // of the main lane, and its forwards
  forwards: number;
  used: number;
  room: number;
  most: number;
}

// Where a run left another at one of its tokens, counted from 1, and what it took there.
interface ForkPlace {
  token: number;
  taken: string;
  instead: string;
}

// of: the turn whose run was left.
interface Fork extends ForkPlace {
  of: Turn;
}

// What was tried in the place of an answer, and what branched from it.
interface Tried {
  turn: Turn;
  branches: Tried[];
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
  fork: Fork | null; // where it branches from another answer in its place
}

// A turn over a reload; parent, next, of: places among the turns, -1 for none.
type StoredTurn = Pick<Turn, "prompt" | "run" | "told" | "value"> & {
  parent: number;
  next: number;
  fork?: (ForkPlace & { of: number }) | null;
};

// before: the run on show when it was asked.
interface Expected {
  parent: Turn | null;
  prompt: string;
  before: string;
  fork?: Fork | null;
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
  siblings: Turn[];
}

interface TurnActions {
  show(turn: Turn): void;
  edit(turn: Turn | null): void;
  again(turn: Turn): void;
  send(turn: Turn, prompt: string): void;
}

// Compare and the grid.

type PinRow = import("../views/compare/rows.js").Row;

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

type GridScale = ReturnType<typeof import("../views/grid/frontier.js").scaleOf>;

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
  beside: HTMLElement;
  parts: HTMLElement[];
  drawn: number;
}
