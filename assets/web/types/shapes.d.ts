// Types of values that functions of one module pass to each other.

interface AskDetail {
  kind: string;
  lane: { name: string } | string;
  token: number;
  id: number;
  settings: Partial<Settings>;
}

// A request to run a prompt with given settings, which does not refer to a displayed run.
interface SettingsDetail {
  kind: "settings";
  prompt: string;
  checkpoint: string;
  settings: Settings;
  limit?: number; // token limit, if it is not the page's
  isKept?: boolean;
}

interface Order {
  posted: Record<string, unknown> | null; // what Run posts instead of the page's values; null: set only the controls
  isKept?: boolean; // whether the values of the controls are restored later (giveBack in views/page/page.js)
  checkpoint: string;
  settings: Partial<Settings>;
  view: string[] | null; // names of the lanes; null: as chosen in the controls
}

// Passes of a text that are hidden and shown together. cut: how many of them are shown, -1 if that is not known.
interface Group {
  node: HTMLElement;
  first: number;
  nodes: HTMLElement[][];
  cut: number;
}

// A decoding method, as the class of the same name in Python describes it.
interface MethodFacts {
  title: string;
  obeys: (keyof Settings)[];
  drafts: string;
  isExact: boolean;
  isReference: boolean; // AR
  isGuessing: boolean;
  needsDraftModel: boolean;
}
