// The browser, plotly, and the one global of ours.

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
  lookup: string;
  lookupLine: string;
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
  shareSetup?(): Promise<string>;
  [name: string]: unknown;
}

// What a view may ask of the server that it came from, if it came from one.
interface Server {
  missed?(run: string): Promise<string>;
  layers?(fed: object): Promise<LayersAnswer>;
  keep?(value: string): Promise<{ name: string } | { error: string }>;
  shared?(asked: { name: string } | { value: string }): Promise<{ value: string } | { error: string }>;
}

type Attributes = Record<string, string | number | boolean>;

// How a view asks its page for what a trace cannot give.
interface DocumentEventMap {
  "mars-ask": CustomEvent<any>;
  "mars-mount": Event; // of a view of lines, when it is there
}

interface Window {
  mars: Mars;
  Plotly?: Plotly;
}

// An element keeps its view, a token or cell what it stands for.
interface Element {
  lineView?: import("../core/line_view.js").LineView & Partial<View>;
  compareView?: import("../views/compare/view.js").CompareView;
  pictures?: Record<string, unknown>;
  rvToken?: number;
  rvForward?: number;
  rvState?: string;
}
