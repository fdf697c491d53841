import { describe, expect, it } from 'vitest';
import type { Drawing, DrawnGroup } from '../src/record/generated/scene';
import { boxAt, CLOSED_HEIGHT, edgeAt, FOOT, MARGIN, NODE_HEIGHT, place, ROW_GAP, TITLE_HEIGHT } from '../src/explorer/graph/geometry';

function group(parts: Partial<DrawnGroup>): DrawnGroup {
  return { id: 'g', parent: -1, label: 'g', kind: 'root', fate: '', note: '', open: true, width: 200, rows: [], edges: [], first: 0, ...parts };
}

function drawing(groups: DrawnGroup[]): Drawing {
  return { graph: 'g0.fx', title: '', inner: '', groups, labels: [], fates: '', left_out: [], description: '' };
}

/** a above a kernel of b and c (one below the other), beside d; e reads the kernel and, past it, a. */
const NESTED = drawing([
  group({
    rows: [[0, 100, 60], [-1, 70, 120, 3, 170, 40], [4, 100, 60]],
    edges: [[0, 0, 1, 100, 70], [2, 1, 3, 70, 90], [0, 0, 3, 110, 140, 110], [3, 2, 3, 170, 120]],
  }),
  group({
    id: 'k', parent: 0, kind: 'kernel', width: 120, rows: [[1, 60, 40], [2, 60, 40]],
    edges: [[0, -1, 0, 60, 60], [1, 0, 1, 60, 60], [2, 1, -1, 60, 60]],
  }),
]);
const OPEN = TITLE_HEIGHT + 2 * NODE_HEIGHT + ROW_GAP + FOOT;

describe('place', () => {
  it('stacks rows whose height is that of their tallest item', () => {
    const closed = place(NESTED, new Set());
    const open = place(NESTED, new Set([1]));
    expect(closed.height).toBe(2 * NODE_HEIGHT + CLOSED_HEIGHT + 2 * ROW_GAP + 2 * MARGIN);
    expect(open.height - closed.height).toBe(OPEN - CLOSED_HEIGHT);
    expect(open.width).toBe(200 + 2 * MARGIN);
  });

  it('puts every item in the middle of its row and at its own x', () => {
    const { boxes } = place(NESTED, new Set([1]));
    const [a, k, d, e, b, c] = boxes.map(({ ref, x, y, width, height }) => ({ ref, x, y, width, height }));
    expect(a).toEqual({ ref: 0, x: MARGIN + 70, y: MARGIN, width: 60, height: NODE_HEIGHT });
    const row = MARGIN + NODE_HEIGHT + ROW_GAP;
    expect(k).toEqual({ ref: -1, x: MARGIN + 10, y: row, width: 120, height: OPEN });
    expect(d).toMatchObject({ ref: 3, x: MARGIN + 150, y: row + (OPEN - NODE_HEIGHT) / 2 });
    expect(e).toMatchObject({ ref: 4, y: row + OPEN + ROW_GAP });
    expect(b).toMatchObject({ ref: 1, x: MARGIN + 10 + 40, y: row + TITLE_HEIGHT });
    expect(c).toMatchObject({ ref: 2, y: row + TITLE_HEIGHT + NODE_HEIGHT + ROW_GAP });
  });

  it('keeps what is across when a group is opened, and moves only what is below', () => {
    const closed = place(NESTED, new Set()).boxes;
    const open = place(NESTED, new Set([1])).boxes;
    expect(closed.map((box) => box.ref)).toEqual([0, -1, 3, 4]);
    for (const box of closed) expect(open.find((each) => each.ref === box.ref)).toMatchObject({ x: box.x, width: box.width });
    expect(open[0]).toEqual(closed[0]);
  });

  it('leads edges from box to box, straight through the rows between', () => {
    const { edges, boxes } = place(NESTED, new Set());
    const long = edges.find((edge) => edge.value === 0 && boxes[edge.to]?.ref === 4);
    const [a, , , e] = boxes;
    const row = MARGIN + NODE_HEIGHT + ROW_GAP;
    expect(long?.points).toEqual([
      MARGIN + 110, (a?.y ?? 0) + NODE_HEIGHT, MARGIN + 140, row, MARGIN + 140, row + CLOSED_HEIGHT, MARGIN + 110, e?.y,
    ]);
  });

  it('goes on with an edge within a group at the x where it met its border', () => {
    const { edges, boxes } = place(NESTED, new Set([1]));
    const outside = edges.find((edge) => edge.value === 0 && boxes[edge.to]?.ref === -1);
    const inside = edges.find((edge) => edge.group === 1 && edge.from === -1);
    expect(outside?.points.at(-2)).toBe(inside?.points[0]);
    const out = edges.find((edge) => edge.group === 1 && edge.to === -1);
    const k = boxes[1];
    expect(out?.points.at(-1)).toBe((k?.y ?? 0) + (k?.height ?? 0));
  });

  it('survives a drawing that is not one', () => {
    const cyclic = drawing([
      group({ rows: [[-1, 50, 20, -7, 50, 20, 9, 10, 10], [-1, 5, 5]], edges: [[0, 5, 9, 1, 2], [0, 2, 0, 1, 2], [0, -3, 0, 1, 1], [0]] }),
      group({ parent: 0, rows: [[-1, 10, 10, 0, 1]] }),
    ]);
    const { boxes, edges, height } = place(cyclic, new Set([0, 1]));
    expect(boxes.filter((box) => box.ref === -1)).toHaveLength(1);
    expect(edges).toHaveLength(0);
    expect(Number.isFinite(height)).toBe(true);
    expect(place(drawing([]), new Set()).boxes).toEqual([]);
  });
});

describe('what is at a point', () => {
  const geometry = place(NESTED, new Set([1]));
  const middle = (ref: number): [number, number] => {
    const box = geometry.boxes.find((each) => each.ref === ref);
    return [(box?.x ?? 0) + (box?.width ?? 0) / 2, (box?.y ?? 0) + 5];
  };

  it('is the innermost box; of an open group its title, of a kernel all of it', () => {
    expect(geometry.boxes[boxAt(geometry, ...middle(2))]?.ref).toBe(2);
    expect(geometry.boxes[boxAt(geometry, ...middle(-1))]?.ref).toBe(-1);
    const [x, y] = middle(1);
    expect(geometry.boxes[boxAt(geometry, x - 30, y)]?.ref).toBe(-1);
    const [root, kernel] = NESTED.groups as [DrawnGroup, DrawnGroup];
    const modules = place(drawing([root, { ...kernel, kind: 'module' }]), new Set([1]));
    expect(boxAt(modules, x - 30, y)).toBe(-1);
    expect(modules.boxes[boxAt(modules, ...middle(-1))]?.ref).toBe(-1);
  });

  it('is the edge that passes there', () => {
    const straight = geometry.edges.findIndex((edge) => edge.value === 1);
    const [x, y] = middle(2);
    expect(edgeAt(geometry, x + 2, y - 20, 4)).toBe(straight);
    expect(edgeAt(geometry, x + 12, y - 20, 4)).toBe(-1);
    // Half way down, a curve is half way across.
    const curved = geometry.edges.findIndex((edge) => edge.value === 0 && edge.points.length === 4 && edge.group === 0);
    const [x0, y0, x1, y1] = geometry.edges[curved]?.points as [number, number, number, number];
    expect(edgeAt(geometry, (x0 + x1) / 2, (y0 + y1) / 2, 2)).toBe(curved);
  });
});
