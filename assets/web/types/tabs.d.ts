// Types of the tour, the conversation and the Compare view.

// The tour.

// Callbacks for a live run that the tour starts on the page behind it.
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

// A run that a stop of the tour has shown, to which the next stop can refer.
interface ShownRun {
  lanes: Lane[];
  note: string;
}

interface Scene {
  beats: Beat[];
  canLive?: boolean;
  isPlaying?: boolean;
  isLive?: boolean; // whether a live run is shown instead of the recording
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

// What the conversation stores about an answer. ids, texts: by lane. perForward: tokens per pass of the main lane.
// used: number of tokens of prompt and answer. room: maximum number of these tokens. most: maximum number of an
// answer's tokens.
interface Told {
  checkpoint: string;
  ids: Record<string, number[]>;
  texts: Record<string, string>;
  perForward: number;
  loop?: string; // a sentence on where the text repeats itself
  differs: boolean;
  used: number;
  room: number;
  most: number;
}

// Where a branch leaves the original run. token: number of the token, from 1. taken: the branch's token. instead: the
// original token.
interface ForkPlace {
  token: number;
  taken: string;
  instead: string;
}

// A turn of a conversation. value: value with which a race view can display the run, "" while it is running and after it
// was dropped.
interface Turn {
  prompt: string;
  run: string;
  isOver: boolean;
  value: string;
  told: Told | null;
}

// The turn of a requested run. at: number of turns before it. before: id of the run that was displayed when it was
// requested.
interface Expected {
  at: number;
  prompt: string;
  before: string;
}

// replaced: the turns that were removed when the run began.
interface Going {
  turn: Turn;
  run: Run;
  replaced: Turn[];
}

interface TurnState {
  isShown: boolean;
  isEdited: boolean;
  isBusy: boolean;
  isOwn: boolean;
}

interface TurnActions {
  show(turn: Turn): void;
  edit(turn: Turn | null): void;
  send(turn: Turn, prompt: string): void;
}

// The Compare view.

type PinRow = import("../views/compare/rows.js").Row;

// Callbacks of a row in the tray.
interface RowReport {
  change(pin: Pin, changes: Partial<PinRecord>): void;
  tick(pin: Pin, isOn: boolean): void;
  open(pin: Pin): void;
  remove(pin: Pin): void;
}

// A compared text. own, missing, toBase, near, fromBase: see `alignment` in views/compare/texts.js.
interface ComparedText extends Alignment {
  lane: Lane;
  element: HTMLElement;
  parts: Record<string, HTMLElement>;
  view: TokenView;
  text: HTMLElement;
  marked: HTMLElement[];
  lit: HTMLElement | null;
}
