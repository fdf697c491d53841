import { describe, expect, it, test } from 'vitest';
import type { DrawnGroup } from '../src/record/generated/scene';
import { counterparts, lacking } from '../src/explorer/code/elsewhere';
import { place, TITLE_HEIGHT } from '../src/explorer/graph/geometry';
import { LABEL_SIZE, labels } from '../src/explorer/graph/labels';
import { lookOf } from '../src/explorer/graph/looks';
import { propertiesOf } from '../src/explorer/graph/properties';
import { Sheet } from '../src/explorer/graph/sheet';
import { Layout, LOWEST } from '../src/explorer/layout';
import { State } from '../src/explorer/state';
import { hostOf, record } from './records';

const PLAIN = { id: 'fate' as const, about: '', steps: [], of: () => null };

function group(parts: Partial<DrawnGroup>): DrawnGroup {
  return { id: 'g', parent: -1, label: 'g', kind: 'root', fate: '', note: '', open: true, width: 200, rows: [], edges: [], first: 0, ...parts };
}

/** An input, three equal modules of one node each, and what reads the last. */
const LAYERS = {
  graph: 'g0.fx', title: '', inner: '', labels: [], fates: '', left_out: [], description: '',
  groups: [
    group({ rows: [[0, 100, 60], [-1, 100, 160], [4, 100, 60]], edges: [[0, 0, 1, 100, 100], [3, 1, 2, 110, 100]] }),
    group({
      id: 'r', parent: 0, kind: 'repeat', width: 160, rows: [[-2, 80, 120], [-3, 80, 120], [-4, 80, 120]],
      edges: [[0, -1, 0, 80, 80], [1, 0, 1, 80, 80], [2, 1, 2, 80, 80], [3, 2, -1, 80, 90]],
    }),
    ...[1, 2, 3].map((ref) => group({ id: `m${ref}`, parent: 1, kind: 'module', width: 120, rows: [[ref, 60, 50]], edges: [[ref - 1, -1, 0, 60, 60], [ref, 0, -1, 60, 60]] })),
  ],
};

describe('equal modules', () => {
  const all = new Set([1, 2, 3, 4]);

  it('are one with how many they are, until they are unfolded', () => {
    const folded = place(LAYERS, all);
    expect(folded.boxes.map((box) => box.ref)).toEqual([0, -1, 4, -2, 1]);
    expect(folded.boxes.find((box) => box.ref === -1)).toMatchObject({ open: true, folded: true });
    const unfolded = place(LAYERS, all, new Set([1]));
    expect(unfolded.boxes.map((box) => box.ref).sort((a, b) => a - b)).toEqual([-4, -3, -2, -1, 0, 1, 2, 3, 4]);
    expect(unfolded.boxes.every((box) => !box.folded)).toBe(true);
    expect(unfolded.height - folded.height).toBeGreaterThan(2 * TITLE_HEIGHT);
  });

  it('are read from and read on where the last one is', () => {
    const { edges, boxes } = place(LAYERS, all);
    const inside = edges.filter((edge) => edge.group === 1);
    expect(inside.map(({ from, to }) => [boxes[from]?.ref ?? 'border', boxes[to]?.ref ?? 'border'])).toEqual([['border', -2], [-2, 'border']]);
    const repeat = boxes.find((box) => box.ref === -1);
    const leaves = inside[1]?.points ?? [];
    expect(leaves[leaves.length - 2]).toBe((repeat?.x ?? 0) + 90);
  });

  it('are one box when closed', () => {
    expect(place(LAYERS, new Set()).boxes.map((box) => box.ref)).toEqual([0, -1, 4]);
  });
});

describe('names at a scale', () => {
  const state = new State(record('small'), hostOf(null));
  const drawing = state.data.scene?.drawings.find((each) => each.graph.endsWith('fused'));
  const graph = state.data.record.graphs.find((each) => each.id === drawing?.graph);
  if (!drawing || !graph) throw new Error('no drawing');
  const sheet = new Sheet(state, graph, drawing);
  const geometry = place(drawing, new Set(drawing.groups.keys()));
  const looks = geometry.boxes.map((box) => lookOf(sheet, box, PLAIN));

  test.each([0.8, 0.5, 0.3, 0.15, 0.05])('are as large at %f and none lies on another', (scale) => {
    const found = labels(geometry, looks, scale);
    expect(found.length).toBeGreaterThan(0);
    const boxes = found.map(({ text, x, y }) => {
      const half = (text.length * 5) / 2;
      return { left: x * scale - half, right: x * scale + half, top: y * scale - LABEL_SIZE / 2, bottom: y * scale + LABEL_SIZE / 2 };
    });
    for (const [n, a] of boxes.entries()) {
      for (const b of boxes.slice(n + 1)) {
        expect(a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom).toBe(false);
      }
    }
  });

  it('are of every box where there is room, and of groups first where there is not', () => {
    expect(labels(geometry, looks, 1).length).toBe(geometry.boxes.length);
    const few = labels(geometry, looks, 0.12);
    expect(few.length).toBeLessThan(geometry.boxes.length);
    expect(looks[few[0]?.box ?? -1]?.toggle).toBe(true);
  });
});

describe('what is chosen', () => {
  it('has its properties: where it comes from, what does its work, who reads it', () => {
    const state = new State(record('small'), hostOf(null));
    const fx = state.data.record.graphs.find((graph) => graph.stage === 'fx');
    const node = fx?.nodes.find((each) => each.kind === 'compute');
    const known = propertiesOf(state, node?.id ?? '');
    expect(known?.graph.id).toBe(fx?.id);
    expect(known?.lines.length).toBeGreaterThan(0);
    expect((known?.kernels.length ?? 0) + (known?.calls.length ?? 0)).toBeGreaterThan(0);
    for (const user of known?.users ?? []) expect(user.inputs).toContain(node?.id);
    expect(propertiesOf(state, 'nobody')).toBeNull();
  });

  it('lights the decisions that made a kernel, and no other kernel', () => {
    const state = new State(record('small'), hostOf(null));
    const { kernels, decisions } = state.data.record;
    const kernel = kernels.find((each) => each.loops.length > 1);
    const made = decisions.filter((each) => kernel?.loops.includes(each.producer) && kernel.loops.includes(each.consumer));
    expect(made.length).toBeGreaterThan(0);
    const lit = state.around({ ids: [kernel?.id ?? ''] }).ids;
    for (const each of decisions) expect(lit.has(each.id)).toBe(made.includes(each));
    expect(kernels.filter((each) => lit.has(each.id))).toEqual([kernel]);
  });

  it('leads to a graph that has it, of the stage that is shown', () => {
    const state = new State(record('small'), hostOf(null));
    const { graphs, kernels } = state.data.record;
    const fused = graphs.find((graph) => graph.stage === 'fused');
    const kernel = kernels[0]?.id ?? '';
    state.graph.value = fused?.id ?? '';
    state.choose(kernel);
    expect(state.graph.value).toBe(fused?.id);
    expect(state.kernel.value).toBe(kernel);
    // What nothing was made of stands in the captured graph alone.
    const output = graphs.find((graph) => graph.stage === 'fx')?.nodes.find((node) => node.kind === 'output');
    if (output) {
      state.pin({ ids: [output.id] });
      expect(state.graph.value).toBe(graphs.find((graph) => graph.stage === 'fx')?.id);
    }
  });
});

describe('texts from elsewhere', () => {
  it('are those that the record lacks', () => {
    const state = new State(record('small'), hostOf(null));
    expect(lacking(state, { c: '' }).map((each) => each.title)).toEqual(['Triton', 'PTX', 'SASS', 'Inductor']);
    expect(lacking(state, { triton: '', ptx: '', sass: '' }).map((each) => each.title)).toEqual(['C', 'Inductor']);
    expect(lacking(new State(record('inductor'), hostOf(null)), { cpp: '' })).toEqual([]);
  });

  it('are of the kernel that does the same work', () => {
    const [one, two] = [new State(record('small'), hostOf(null)), new State(record('no_fuse'), hostOf(null))];
    for (const kernel of one.data.record.kernels) {
      expect(counterparts(one, kernel, new State(record('small'), hostOf(null)))[0]?.id).toBe(kernel.id);
      const parts = counterparts(one, kernel, two);
      expect(parts.length).toBeGreaterThan(0);
    }
  });
});

test('panes are taken out one at a time, and borders stay within bounds', () => {
  const layout = new Layout();
  layout.lift('graph', 'maximised');
  layout.lift('code', 'beside');
  expect([layout.howIs('graph'), layout.howIs('code')]).toEqual([null, 'beside']);
  layout.lift('code', 'beside');
  expect(layout.lifted.value).toBeNull();
  const away = {} as Window;
  layout.detach('all', away);
  expect([layout.howIs('all'), layout.windowOf('all'), layout.windowOf('code')]).toEqual(['window', away, null]);
  layout.restore();
  expect(layout.windowOf('all')).toBeNull();
  layout.setSplit(-3);
  layout.setHeight(1);
  expect([layout.split.value, layout.height.value]).toEqual([0.15, LOWEST]);
});
