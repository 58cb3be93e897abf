// Types of values computed from lanes (folds/), and interfaces between views and panels.

// Values computed from lanes.

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

// A place where a pass proposed another token than AR (folds/places.js). mine, ar: ids of its token and of AR's.
interface Place {
  token: number;
  step: number;
  kind: string;
  mine: number;
  ar: number;
  p: number | null;
  isFirst: boolean;
}

type Segment = { kind: string; a: number; b: number; num: number };

// Interfaces between a view and its parts.

// A chosen pass. token: index of the chosen token, -1 for none.
interface Focus {
  lane: Lane;
  step: number;
  token?: number;
}

// The race view's interface for its drawer, menus and player.
interface View {
  root: HTMLElement;
  run: Run; // never null: these parts are drawn only while there is a run
  selected: Focus | null;
  playhead: Playhead;
  isByKey: boolean; // whether the visitor chooses tokens with the keyboard
  isMoving: boolean; // whether the displayed position advances by itself
  shown(lane: Lane): Lane;
  choose(lane: Lane | null, step?: number, token?: number): void;
  canAsk(kind: string): boolean;
  ask(kind: string, data: object): boolean;
  server: Server;
  paneOf(lane: Lane): import("../text/pane.js").TextPane;
  schedule(): void;
}

type RaceView = import("../views/race/view.js").RaceView;
type TokenView = import("../text/text.js").TokenView;

// What a text draws in addition to its tokens: the number of tokens below each pass, fills by the confidence of each
// token, or only the sources of tokens.
type TextMarks = "passes" | "confidence" | "sources";

interface TextReport {
  token?(view: TokenView, index: number, how: string): void;
  leave?(view: TokenView): void;
  choose?(lane: Lane, step: number, token: number): void;
  marked?(): void;
}

interface Recording {
  note: string;
  prompt: string;
  lanes: Lane[];
}

interface FileOffer {
  text: string;
  hint: string;
  make(): Made | Promise<Made>;
}

// A file to save, or a sentence about what was done instead.
type Made = NamedBlob | { said: string };

interface NamedBlob {
  name: string;
  blob: Blob;
}

interface Offer {
  label: string;
  files: FileOffer[];
}
