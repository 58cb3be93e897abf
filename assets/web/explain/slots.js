// The fold of a trace into cache slots: what each forward fed, what it predicted and what became of that.
// Places count from the end of the prompt: -1 is its last token, 0 the first token of the output. No DOM.

import { Lane, draftIds } from "../core/trace.js";

// lines: a trace's, header first. Row 0 alone.
export function slotRun(title, lines) {
  const lane = new Lane({ lane: "recorded", title });
  const forwards = [];
  let drafts = [];
  for (const line of lines) {
    const event = JSON.parse(line);
    lane.push(event, line);
    const row = event.type === "step" && event.rows.find((r) => r.row === 0);
    if (!row) continue;
    const forward = readForward(lane, event, row, drafts);
    forward.index = forwards.length;
    forwards.push(forward);
    drafts = draftIds(lane.steps.at(-1));
  }
  return { title, lane, forwards, emitted: lane.tokens.map((token) => token.id) };
}

function readForward(lane, event, row, drafts) {
  const prompt = lane.header.prompt_ids.length;
  const first = row.cursor - prompt;
  const tokens = lane.tokens;
  const known = (place) =>
    place < 0
      ? lane.header.prompt_ids[prompt + place]
      : place < row.start
        ? tokens[place].id
        : drafts[place - row.start];
  // Of several groups of masks the last is drawn, for it alone stands behind all that was fed.
  const numDrawn = row.groups?.length ? row.num_pending + row.groups.at(-1) : row.num_fed;
  const fed = Array.from({ length: numDrawn }, (_, slot) => {
    const place = first + slot;
    if (slot >= row.num_pending) return { place, kind: "mask", id: null };
    return { place, kind: place < row.start ? "pending" : "draft", id: known(place) };
  });
  const fates = fatesOf(row, drafts);
  const predicted = row.proposals.map(([id, confidence], i) => ({
    place: row.start + i,
    id,
    confidence,
    fate: fates[i],
  }));
  return {
    first,
    start: row.start,
    numPending: row.num_pending,
    numFed: row.num_fed,
    fed,
    predicted,
    accepted: row.accepted,
    drafted: draftIds(lane.steps.at(-1)).length,
    stop: row.stop,
    isCommit: Boolean(event.commit),
    seconds: event.seconds,
    tau: lane.settings.tau,
    isLossless: lane.settings.lossless,
  };
}

// agreed: a draft that AR confirms; replaced: AR's token where a draft was wrong; accepted: emitted now;
// draft: to be verified by the next forward; refused: below the threshold; dropped: behind a wrong draft.
function fatesOf(row, drafts) {
  const count = row.accepted.length;
  return row.proposals.map(([id], i) => {
    if (i < count) return i >= drafts.length ? "accepted" : id === drafts[i] ? "agreed" : "replaced";
    if (i < count + (row.num_drafted || 0)) return "draft";
    return row.stop === "mismatch" && !row.groups?.[count - 1] ? "dropped" : "refused";
  });
}

// What is known of a run after its first `count` forwards, the next one fed but not read when `isFed`.
export function slotsAt(run, count, isFed) {
  const last = run.forwards[Math.min(count, run.forwards.length) - 1];
  const tokens = last ? last.start + last.accepted.length : 0;
  const fed = run.forwards.slice(0, count).reduce((sum, f) => sum + f.numFed, 0);
  const now = isFed ? run.forwards[count] : last;
  return {
    now: now || last,
    isRead: !isFed || !run.forwards[count],
    tokens,
    fed: fed + (isFed && run.forwards[count] ? run.forwards[count].numFed : 0),
    forwards: Math.min(count, run.forwards.length),
    isOver: count >= run.forwards.length,
  };
}
