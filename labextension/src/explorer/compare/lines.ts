/** What two texts have in common, line by line. */

/** Cells of the table that compares what differs; above that, all of it counts as replaced. */
const MAX_CELLS = 4_000_000;
/** Lines that one is held against, for the one that it became. */
const MAX_LIKELY = 40;

/** Pairs of places `[a, b]` of equal lines, in order: a longest common subsequence. */
export function common(a: readonly string[], b: readonly string[]): [number, number][] {
  let [start, endA, endB] = [0, a.length, b.length];
  while (start < endA && start < endB && a[start] === b[start]) start++;
  while (endA > start && endB > start && a[endA - 1] === b[endB - 1]) [endA, endB] = [endA - 1, endB - 1];
  const pairs = Array.from({ length: start }, (_, place): [number, number] => [place, place]);
  pairs.push(...between(a, b, start, endA, endB));
  for (let place = 0; endA + place < a.length; place++) pairs.push([endA + place, endB + place]);
  return pairs;
}

function between(a: readonly string[], b: readonly string[], start: number, endA: number, endB: number): [number, number][] {
  const [rows, columns] = [endA - start, endB - start];
  if (!rows || !columns || rows * columns > MAX_CELLS) return [];
  const width = columns + 1;
  const longest = new Uint32Array((rows + 1) * width);
  const at = (row: number, column: number): number => longest[row * width + column] ?? 0;
  for (let row = rows - 1; row >= 0; row--) {
    for (let column = columns - 1; column >= 0; column--) {
      const same = a[start + row] === b[start + column];
      longest[row * width + column] = same ? at(row + 1, column + 1) + 1 : Math.max(at(row + 1, column), at(row, column + 1));
    }
  }
  const out: [number, number][] = [];
  for (let row = 0, column = 0; row < rows && column < columns; ) {
    if (a[start + row] === b[start + column]) out.push([start + row++, start + column++]);
    else if (at(row + 1, column) >= at(row, column + 1)) row++;
    else column++;
  }
  return out;
}

/** One line of a unified diff: numbers from 1, `null` where a side has no such line. */
export interface DiffLine {
  sign: ' ' | '+' | '-';
  text: string;
  before: number | null;
  after: number | null;
}

/** Hunks of a unified diff, with `context` equal lines around each change. */
export function hunks(before: string, after: string, context = 3): DiffLine[][] {
  const all = unified(before.split('\n'), after.split('\n'));
  const near = new Set<number>();
  all.forEach((line, place) => {
    if (line.sign !== ' ') for (let each = place - context; each <= place + context; each++) near.add(each);
  });
  const out: DiffLine[][] = [];
  all.forEach((line, place) => {
    if (!near.has(place)) return;
    const last = out[out.length - 1];
    if (last && near.has(place - 1)) last.push(line);
    else out.push([line]);
  });
  return out;
}

function unified(a: readonly string[], b: readonly string[]): DiffLine[] {
  const out: DiffLine[] = [];
  let [atA, atB] = [0, 0];
  for (const [endA, endB] of [...common(a, b), [a.length, b.length]] as [number, number][]) {
    for (; atA < endA; atA++) out.push({ sign: '-', text: a[atA] ?? '', before: atA + 1, after: null });
    for (; atB < endB; atB++) out.push({ sign: '+', text: b[atB] ?? '', before: null, after: atB + 1 });
    if (atA < a.length) out.push({ sign: ' ', text: a[atA] ?? '', before: ++atA, after: ++atB });
  }
  return out;
}

/**
 * Which line of `after` each line of `before` became, both from 1. Equal lines first; between these, lines
 * that have most words in common are taken for edited ones.
 */
export function lineMap(before: string, after: string): Map<number, number> {
  const [a, b] = [before, after].map((text) => text.split('\n').map((line) => line.trimEnd())) as [string[], string[]];
  const out = new Map<number, number>();
  let [atA, atB] = [0, 0];
  for (const [endA, endB] of [...common(a, b), [a.length, b.length]] as [number, number][]) {
    for (; atA < endA; atA++) {
      const line = a[atA] ?? '';
      const likely = b.slice(atB, Math.min(endB, atB + MAX_LIKELY)).map((other, place) => ({ place: atB + place, alike: alike(line, other) }));
      const best = likely.reduce<(typeof likely)[number] | null>((most, each) => (each.alike > (most?.alike ?? 0.5) ? each : most), null);
      if (!best) continue;
      out.set(atA + 1, best.place + 1);
      atB = best.place + 1;
    }
    if (atA < a.length) out.set(atA + 1, endB + 1);
    [atA, atB] = [endA + 1, endB + 1];
  }
  return out;
}

/** Share of words that two lines have in common, 0 to 1. */
function alike(a: string, b: string): number {
  const [left, right] = [words(a), words(b)];
  const shared = [...left].filter((word) => right.has(word)).length;
  return left.size && right.size ? shared / (left.size + right.size - shared) : 0;
}

function words(line: string): Set<string> {
  return new Set(line.match(/\w+|[^\s\w]/g) ?? []);
}
