// The recorded runs and measured figures that came with the page (app/components/recorded.py): read when asked for.

const read = new Map();
let came = null;

function shipped() {
  const element = document.getElementById("mars-recorded");
  came ||= element ? JSON.parse(element.textContent) : { runs: {}, facts: {} };
  return came;
}

// A measured figure in words, by its name in app/components/explain_facts.py.
export const fact = (name) => shipped().facts[name] || "–";

// { prompt, note, verdicts, lanes: [{ name, title, lines }] }, or null when it did not come along.
export function recording(name) {
  if (!read.has(name)) read.set(name, parse(shipped().runs[name]));
  return read.get(name);
}

function parse(value) {
  if (!value) return null;
  const [first, ...lines] = value.split("\n");
  const head = JSON.parse(first);
  const lanes = head.lanes.map(({ lane, title }) => ({ name: lane, title, lines: [] }));
  const verdicts = {};
  for (const line of lines) {
    const tab = line.indexOf("\t");
    const lane = lanes.find((l) => l.name === line.slice(0, tab));
    if (lane) lane.lines.push(line.slice(tab + 1));
    else if (line.startsWith("verdict\t")) {
      const verdict = JSON.parse(line.slice(tab + 1));
      verdicts[verdict.lane] = verdict.right;
    }
  }
  const { prompt } = JSON.parse(lanes[0].lines[0]);
  return { note: String(head.recorded || ""), prompt, verdicts, lanes };
}
