// The recorded runs that came with the page (app/components/recorded.py): read when asked for, kept.

const read = new Map();

function shipped() {
  const element = document.getElementById("mars-recorded");
  return element ? JSON.parse(element.textContent) : {};
}

// { prompt, note, verdicts, lanes: [{ name, title, lines }] }, or null when it did not come along.
export function recording(name) {
  if (!read.has(name)) read.set(name, parse(shipped()[name]));
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
