// Written by `python tools/wire_types.py` from mars_runtime/runs/events.py, annotations.py and trace.py.

interface Settings {
  method: "mars" | "ar" | "jacobi" | "speculative" | "block_diffusion";
  tau: number;
  block_size: number | "auto";
  metric: "probability" | "margin" | "entropy";
  lossless: boolean;
  max_new_tokens: number;
  temperature: number;
  seed: number;
  mask_layout: "last" | "every";
  lookup: boolean;
  draft: string;
  masked: "both" | "draft" | "target" | "none";
  top_p: number;
  tau_policy: "fixed" | "entropy" | "agreement";
  agreement_target: number;
  repetition_penalty: number;
  stop_loops: boolean;
  presence_penalty: number;
  frequency_penalty: number;
  logit_bias: [number, number][];
  top_k: number;
  min_p: number;
  min_tokens: number;
  ignore_eos: boolean;
}

interface EarlierTurn {
  prompt: string;
  tokens: number[];
}

type Proposal = [token: number, confidence: number, runners_up: [number, number][]];

interface RowStep {
  row: number;
  start: number;
  cursor: number;
  num_pending: number;
  num_fed: number;
  proposals: Proposal[];
  accepted: number[];
  num_drafted: number;
  settings?: Settings;
  stop: "block" | "threshold" | "mismatch" | "eos" | "limit" | "repeats";
  block_size?: number;
  checks?: [number, number][];
  groups?: number[];
  looked_up?: number[];
  guessed?: number[];
  num_draft_forwards?: number;
  taken?: number[];
  threshold?: number;
  declined?: number[];
  sources?: string;
  loop?: [number, number];
  spread?: number;
}

interface HeaderEvent {
  type: "header";
  checkpoint: string;
  prompt: string;
  prompt_ids: number[];
  settings: Settings;
  hardware: string;
  dtype: string;
  versions: Record<string, string>;
  threads: number;
  date: string;
  task: Record<string, unknown> | null;
  name: string;
  rho: Record<string, number[]>;
  num_given: number;
  forward_seconds: number;
  is_bitwise: boolean;
  history: EarlierTurn[];
  num_left_out: number;
  room: number;
  system: string;
  vocabulary?: Vocabulary;
}

interface PrefillEvent {
  type: "prefill";
  num_tokens: number;
  seconds: number;
  cache_bytes?: number;
  num_reused?: number;
}

interface StepEvent {
  type: "step";
  rows: RowStep[];
  seconds: number;
  vocabulary?: Vocabulary;
}

interface EndEvent {
  type: "end";
  reason: "eos" | "limit" | "repeats" | "cancelled" | "deadline" | "error";
  message: string;
}

type TraceEvent = HeaderEvent | PrefillEvent | StepEvent | EndEvent;
