// Types of the browser's and Plotly's objects, and of the page's one global variable, `mars`.

interface Colours {
  ink: string;
  page: string;
  card: string;
  muted: string;
  grid: string;
  line: string;
  warm: string;
  mars: string;
  ar: string;
  lookup: string;
  runs: string[]; // colours of runs by index in the palette; plain AR's is the first
  bars: string[];
  font: string;
  isCoarse: boolean;
}

// Specifications of charts are plain JSON for the page; only Plotly interprets them.
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
  _fullLayout: { xaxis: PlotAxis; yaxis: PlotAxis } & { [name: string]: PlotAxis }; // set once the chart was plotted
  on(event: string, listener: (event: Json) => void): void;
}

interface Plotly {
  Icons: { home: object };
  newPlot(node: Element, data: Json[], layout: Json, config: Json): Promise<unknown>;
  react(node: Element, data: Json[], layout: Json, config: Json): Promise<unknown>;
  relayout(node: Element, changes: Json): Promise<unknown>;
  purge(node: Element): void;
}

// The global variable `mars`: the exports of the bundle, and the functions that the page adds (views/page/page.js).
interface Mars {
  answers?: string[];
  shareSetup?(): Promise<string>;
  [name: string]: unknown;
}

// The server functions that a view may call; none on a separate page.
interface Server {
  missed?(run: string): Promise<string>;
  shared?(value: string): Promise<{ value: string } | { error: string }>;
}

type Attributes = Record<string, string | number | boolean>;

// The events by which a view requests from its page what it cannot do itself, such as a new run.
// The error of an invalid control.
interface Refusal {
  field: string;
  text: string;
}

interface DocumentEventMap {
  "mars-ask": CustomEvent<any>;
  "mars-pace": CustomEvent<number>; // the chosen slow motion
  "mars-refused": CustomEvent<Refusal>;
  "mars-pinned": CustomEvent<ReviewSet>;
  "mars-mount": Event; // dispatched when a LineView is mounted
}

interface Window {
  mars: Mars;
  Plotly?: Plotly;
}

// Properties of elements: the view of a root element, and the index of a token or cell.
interface Element {
  lineView?: import("../core/line_view.js").LineView & Partial<View>;
  reviewView?: import("../views/review/view.js").ReviewView;
  rvToken?: number;
}
