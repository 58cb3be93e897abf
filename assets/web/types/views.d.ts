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

type WhatIf = ReturnType<typeof import("../folds/whatif.js").whatIf>;
type Segment = { kind: string; a: number; b: number; num: number; isAhead?: boolean };

// Interfaces between views and panels.

interface Focus {
  lane: Lane;
  step: number;
}

// The race view's interface for its panels, menus and player.
interface View {
  root: HTMLElement;
  run: Run; // never null: these parts are drawn only while there is a run
  selected: Focus | null;
  playhead: Playhead;
  focus: Focus;
  isMoving: boolean; // whether the displayed position advances by itself
  shown(lane: Lane): Lane;
  choose(lane: Lane | null, step?: number): void;
  goTo(lane: Lane, step: number): void;
  canAsk(kind: string): boolean;
  ask(kind: string, data: object): boolean;
  lens: import("../views/race/lens.js").Lens;
  server: Server;
  paneOf(lane: Lane): import("../text/panes.js").Pane;
  schedule(): void;
}

// What a card points at: an element, or a box on the page.
type Anchor = Element | { left: number; right: number; top: number; bottom: number };
type RaceView = import("../views/race/view.js").RaceView;
type TokenView = import("../text/text.js").TokenView;

// An answer parsed as Markdown: elements, and pieces of the text as positions [from, to).
type Piece = [from: number, to: number];

interface MarkdownNode {
  tag: string;
  kind?: string;
  children: (MarkdownNode | Piece)[];
}

// The tokens with which a card can start a branch. can: whether a token is one of them. go: starts the branch.
interface Others {
  can(id: number): boolean;
  go(id: number): void;
}

interface TextReport {
  token(view: TokenView, index: number, anchor: Element, how: string): void;
  leave(view: TokenView): void;
  choose(lane: Lane, step: number): void;
  hold?(view: TokenView, index: number, anchor: Element): void; // pins the card, if the view supports that
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

interface PinRecord {
  id: string;
  pinned: number;
  name: string;
  note: string;
  rating: number;
  verdict: boolean | null;
  isImported: boolean;
  number?: number; // number of the run in the tray; missing in records of earlier versions
  colour?: number; // index of its colour in the palette
  lines: string[];
}

// Where a branch leaves the original run.
interface Branch {
  parent: string;
  token: number;
  taken: string;
  instead: string;
}

type Pin = import("../views/compare/tray.js").Pin;
type Tray = import("../views/compare/tray.js").Tray;
