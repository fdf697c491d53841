/**
 * Where everything of a drawing stands while some of its groups are open. Python has laid out each group by
 * itself (see nbcompile/view/drawing/nesting.py): what stands across is fixed, what stands down follows from the
 * heights of rows, so that opening or closing a group moves rows and lays out nothing.
 */
import type { Drawing, DrawnGroup } from '../../record/generated/scene';

export const NODE_HEIGHT = 24;
export const CLOSED_HEIGHT = 28;
export const ROW_GAP = 26;
/** Of an open group: its title with the room below it, and what is left below the last row. */
export const TITLE_HEIGHT = 46;
export const FOOT = 16;
/** Around the whole drawing. */
export const MARGIN = 10;

/** A node, or a group: its title and, when open, the frame around its contents. Pixels, from the top left. */
export interface PlacedBox {
  /** As in DrawnGroup.rows: a node's ref, or minus the place of a group. */
  readonly ref: number;
  /** Place of the group that it stands in. */
  readonly group: number;
  readonly open: boolean;
  /** Of equal modules only the first is shown. */
  readonly folded: boolean;
  /** All of it stands for it: an open group that is no kernel is pointed at by its title alone. */
  readonly solid: boolean;
  readonly x: number;
  readonly y: number;
  readonly width: number;
  readonly height: number;
}

/**
 * The part of an edge that runs in one group. `points` is x, y, x, y, ...: between two points of the same x
 * runs a straight line, else a curve that starts and ends straight down.
 */
export interface PlacedEdge {
  /** Ref of the node whose result it carries. */
  readonly value: number;
  readonly group: number;
  /** Places in {@link Geometry.boxes}; -1: the border of the group. */
  readonly from: number;
  readonly to: number;
  readonly points: readonly number[];
  readonly left: number;
  readonly right: number;
}

export interface Geometry {
  readonly width: number;
  readonly height: number;
  /** Outer groups before what stands in them. */
  readonly boxes: readonly PlacedBox[];
  readonly edges: readonly PlacedEdge[];
}

interface Item {
  ref: number;
  x: number;
  width: number;
}

/**
 * The places of all that shows, by the places of the groups that are open (that of the whole always is). Of equal
 * modules that are open the first alone is shown, but for those in `unfolded`.
 */
export function place(drawing: Drawing, open: ReadonlySet<number>, unfolded: ReadonlySet<number> = new Set()): Geometry {
  const shut = new Set(drawing.groups.flatMap((group, at) => (group.kind === 'repeat' && open.has(at) && !unfolded.has(at) ? [at] : [])));
  const groups = drawing.groups.map((group, at) => (shut.has(at) ? folded(group) : group));
  const root = groups[0];
  if (!root) return { width: 0, height: 0, boxes: [], edges: [] };
  const seen = new Set<number>();
  const rows = groups.map((group, at) => group.rows.map((row) => items(groups, at, row, seen)));
  const heights = new Array<number>(groups.length).fill(CLOSED_HEIGHT);
  const height = (ref: number): number => (ref < 0 ? (heights[-ref] ?? CLOSED_HEIGHT) : NODE_HEIGHT);
  const tallest = (row: readonly Item[]): number => row.reduce((most, item) => Math.max(most, height(item.ref)), NODE_HEIGHT);
  const stretch = (at: number): number =>
    (rows[at] ?? []).reduce((sum, row) => sum + tallest(row) + ROW_GAP, -ROW_GAP);
  // Inner groups come after those around them.
  for (let at = groups.length - 1; at > 0; at--) {
    if (open.has(at) && rows[at]?.length) heights[at] = TITLE_HEIGHT + stretch(at) + FOOT;
  }
  const boxes: PlacedBox[] = [];
  const edges: PlacedEdge[] = [];
  const corners = new Map<number, PlacedBox>();
  const whole = { ref: 0, group: -1, open: true, folded: false, solid: false, x: MARGIN, y: MARGIN, width: root.width, height: stretch(0) };
  corners.set(0, whole);
  groups.forEach((group, at) => {
    const outer = corners.get(at);
    if (!outer?.open) return;
    const numbered: { place: number; row: number }[] = [];
    const bands: { top: number; bottom: number }[] = [];
    let y = outer.y + (at ? TITLE_HEIGHT : 0);
    (rows[at] ?? []).forEach((row, number) => {
      const band = { top: y, bottom: y + tallest(row) };
      for (const item of row) {
        const tall = height(item.ref);
        const box: PlacedBox = {
          ref: item.ref, group: at, open: item.ref < 0 && tall !== CLOSED_HEIGHT, folded: shut.has(-item.ref),
          solid: item.ref >= 0 || tall === CLOSED_HEIGHT || groups[-item.ref]?.kind === 'kernel',
          x: outer.x + item.x - item.width / 2, y: (band.top + band.bottom - tall) / 2, width: item.width, height: tall,
        };
        if (item.ref < 0) corners.set(-item.ref, box);
        numbered.push({ place: boxes.push(box) - 1, row: number });
      }
      bands.push(band);
      y = band.bottom + ROW_GAP;
    });
    for (const edge of group.edges) {
      const placed = route(edge, at, outer, boxes, numbered, bands);
      if (placed) edges.push(placed);
    }
  });
  return { width: root.width + 2 * MARGIN, height: stretch(0) + 2 * MARGIN, boxes, edges };
}

/** A group of equal modules with the first alone: what goes on to the next leaves where the last one's does. */
function folded(group: DrawnGroup): DrawnGroup {
  const first = group.rows[0]?.slice(0, 3) ?? [];
  const goesIn = group.edges.filter(([, from, to]) => from === -1 && to === 0);
  const out = new Map<number, readonly number[]>();
  for (const edge of group.edges) if (edge[1] === 0 && !out.has(edge[3] ?? 0)) out.set(edge[3] ?? 0, edge);
  const ends = [...new Set(group.edges.filter((edge) => edge[2] === -1).map((edge) => edge[edge.length - 1] ?? 0))];
  const leaves = [...out.values()].slice(0, ends.length || 1)
    .map(([value = 0, , , x = 0], n) => [value, 0, -1, x, ends[n] ?? x]);
  return { ...group, rows: [first], edges: [...goesIn, ...leaves] };
}

/** A row's items. A group stands in one place only, after the one around it: a record may come from anyone. */
function items(groups: readonly DrawnGroup[], at: number, row: readonly number[], seen: Set<number>): Item[] {
  const out: Item[] = [];
  for (let n = 0; n + 2 < row.length; n += 3) {
    const [ref, x, width] = row.slice(n, n + 3) as [number, number, number];
    const known = ref >= 0 || (-ref > at && groups[-ref]?.parent === at && !seen.has(ref));
    if (ref < 0) seen.add(ref);
    out.push(known ? { ref, x, width } : { ref: 0, x, width: 0 });
  }
  return out;
}

interface Band {
  top: number;
  bottom: number;
}

function route(
  edge: readonly number[],
  group: number,
  outer: PlacedBox,
  boxes: readonly PlacedBox[],
  numbered: readonly { place: number; row: number }[],
  bands: readonly Band[],
): PlacedEdge | null {
  const [value = 0, source = -1, target = -1, ...xs] = edge;
  const from = end(source, { place: -1, row: -1 }, numbered);
  const to = end(target, { place: -1, row: bands.length }, numbered);
  if (!from || !to || to.row <= from.row || xs.length < 2) return null;
  // What comes in at the top passes under the title.
  const highest = outer.y + (group ? CLOSED_HEIGHT - 2 : -MARGIN);
  const lowest = outer.y + outer.height + (group ? 0 : MARGIN);
  const above: Band = { top: highest, bottom: highest };
  const below: Band = { top: lowest, bottom: lowest };
  const band = (row: number): Band => (row < 0 ? above : (bands[row] ?? below));
  const start = boxes[from.place];
  const stop = boxes[to.place];
  const trail = new Trail(outer.x);
  trail.add(xs[0], start ? start.y + start.height : above.bottom);
  trail.add(xs[0], band(from.row).bottom);
  for (let row = from.row + 1; row < to.row; row++) {
    const x = xs[Math.min(row - from.row, xs.length - 1)];
    trail.add(x, band(row).top);
    trail.add(x, band(row).bottom);
  }
  trail.add(xs[xs.length - 1], band(to.row).top);
  trail.add(xs[xs.length - 1], stop ? stop.y : below.top);
  return { value, group, from: from.place, to: to.place, points: trail.points, left: trail.left, right: trail.right };
}

/** An end of an edge by its number; -1 is the border. `undefined`: the group has no such item. */
function end<T>(number: number, border: T, numbered: readonly T[]): T | undefined {
  return number === -1 ? border : numbered[number];
}

/** The points of an edge, without those that a straight line passes anyway. */
class Trail {
  readonly points: number[] = [];
  left = Infinity;
  right = -Infinity;

  constructor(private readonly origin: number) {}

  add(across: number | undefined, down: number): void {
    const { points } = this;
    const n = points.length;
    const x = this.origin + (across ?? 0);
    if (points[n - 2] === x && points[n - 1] === down) return;
    if (n >= 4 && points[n - 2] === x && points[n - 4] === x) {
      points[n - 1] = down;
      return;
    }
    points.push(x, down);
    this.left = Math.min(this.left, x);
    this.right = Math.max(this.right, x);
  }
}

/** The deepest box at a point, as a place in the geometry's boxes; -1: none. `title`: how high that of an open group is. */
export function boxAt(geometry: Geometry, x: number, y: number, title = CLOSED_HEIGHT): number {
  for (let at = geometry.boxes.length - 1; at >= 0; at--) {
    const box = geometry.boxes[at] as PlacedBox;
    const height = box.solid ? box.height : Math.min(box.height, title);
    if (x >= box.x && x <= box.x + box.width && y >= box.y && y <= box.y + height) return at;
  }
  return -1;
}

/** The edge that passes within `near` of a point, as a place in the geometry's edges; -1: none. */
export function edgeAt(geometry: Geometry, x: number, y: number, near: number): number {
  let [best, least] = [-1, near];
  geometry.edges.forEach((edge, at) => {
    const { points } = edge;
    if (x < edge.left - near || x > edge.right + near) return;
    if (y < (points[1] as number) - near || y > (points[points.length - 1] as number) + near) return;
    for (let n = 0; n + 3 < points.length; n += 2) {
      const [x0, y0, x1, y1] = points.slice(n, n + 4) as [number, number, number, number];
      if (y < y0 - near || y > y1 + near) continue;
      const far = Math.abs(x - across(x0, y0, x1, y1, y));
      if (far < least) [best, least] = [at, far];
    }
  });
  return best;
}

/** The x of a piece of an edge at height `y`. */
function across(x0: number, y0: number, x1: number, y1: number, y: number): number {
  if (x0 === x1 || y1 <= y0) return x0;
  const goal = Math.min(1, Math.max(0, (y - y0) / (y1 - y0)));
  let [low, high] = [0, 1];
  // The curve's height grows with its parameter: halve until it is the one asked for.
  for (let step = 0; step < 12; step++) {
    const t = (low + high) / 2;
    if (1.5 * t * (1 - t) + t ** 3 < goal) low = t;
    else high = t;
  }
  return x0 + (x1 - x0) * (3 - 2 * low) * low * low;
}
