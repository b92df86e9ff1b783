// Prometheus' text format, as far as the console reads it. No page here: pure functions.

export function parseMetrics(text) {
  const rows = [];
  for (const line of text.split("\n")) {
    const found = /^([a-z_]+)(?:\{(.*)\})? (\S+)$/.exec(line);
    if (!found) continue;
    const labels = Object.fromEntries([...(found[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map((one) => [one[1], one[2]]));
    rows.push({ name: found[1], labels, value: found[3] === "+Inf" ? Infinity : Number(found[3]) });
  }
  return rows;
}
export const total = (rows, name, keep = () => true) =>
  rows.filter((row) => row.name === name && keep(row.labels)).reduce((sum, row) => sum + row.value, 0);
// One "labels value" for every series of a name that has counted anything.
export const grouped = (rows, name, by) => rows.filter((row) => row.name === name && row.value > 0)
  .map((row) => `${by.map((key) => row.labels[key]).join(" ")} ${row.value}`);

// The value below which `share` of the observations between two scrapes lie, within its bucket by the straight line.
export function quantile(before, after, share) {
  const sums = new Map();
  for (const [rows, sign] of [[after, 1], [before, -1]]) {
    for (const row of rows) {
      if (row.name !== "ocr_latency_seconds_bucket") continue;
      const bound = row.labels.le === "+Inf" ? Infinity : Number(row.labels.le);
      sums.set(bound, (sums.get(bound) ?? 0) + sign * row.value);
    }
  }
  const bounds = [...sums.keys()].sort((a, b) => a - b), all = sums.get(Infinity) ?? 0;
  let low = 0, below = 0;
  for (const bound of bounds) {
    if (all > 0 && sums.get(bound) >= share * all) {
      return bound === Infinity ? low : low + ((bound - low) * (share * all - below)) / (sums.get(bound) - below);
    }
    [low, below] = [bound, sums.get(bound)];
  }
  return null;
}
