// Types of the presentation, the conversation and the Compare view.

// The presentation.

// A step of a slide. until: the number of passes of the first lane, or the end. from: the pass of a picture, counted
// from the last repair. tau: the threshold of a picture.
interface Beat {
  until?: number | "end";
  from?: number;
  tau?: number;
}

interface SceneSpec {
  kind: "picture" | "race" | "ask";
  recording: string;
  beats: Beat[];
  lanes?: string[]; // names of the recording's lanes
  clock?: "passes" | "seconds";
  isLive?: boolean;
  picture?: string;
  prompts?: string[];
}

interface Scene {
  beats: Beat[];
  canLive?: boolean;
  isLive?: boolean; // whether a live run is shown instead of the recording
  model: string;
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

// A row of a picture of a pass. fed: what the pass was fed at a position. name, p: its prediction there, and the
// confidence. kind: what became of the prediction.
interface Rung {
  fed: string;
  isMask: boolean;
  name: string;
  p: number;
  kind: string;
  fate: string;
}

// The conversation.

// The answer of a turn. ids: its tokens, with a given beginning. perForward: tokens per pass of the main lane.
interface Answer {
  checkpoint: string;
  ids: number[];
  text: string;
  perForward: number;
}

// A turn of a conversation. value: value with which a race view can display the run, "" while it is running and
// after a reload.
interface Turn {
  prompt: string;
  run: string;
  value: string;
  answer: Answer | null;
}

// Where a branch leaves the original run. token: number of the token, from 1. taken: the branch's token. instead: the
// original token.
interface ForkPlace {
  token: number;
  taken: string;
  instead: string;
}
