// @vitest-environment happy-dom
import { signal } from '@preact/signals';
import { describe, expect, it } from 'vitest';
import type { Drawing, DrawnGroup } from '../src/record/generated/scene';
import { read } from '../src/record/read';
import { place } from '../src/explorer/graph/geometry';
import { overlay, type Overlay } from '../src/explorer/graph/overlays';
import { picture, litEdges } from '../src/explorer/graph/painter';
import { Sheet } from '../src/explorer/graph/sheet';
import { State } from '../src/explorer/state';

const node = (id: string, kind: string, origins: string[] = [], more: object = {}): object => ({
  id, name: id.split('.').pop(), op: 'mul', kind, origins, shape: [4, 8], dtype: 'float32', bytes: 128, ...more,
});
const group = (parts: Partial<DrawnGroup>): DrawnGroup => ({
  id: '', parent: 0, label: '', kind: 'module', fate: 'fused', note: '', open: true, width: 100, rows: [], edges: [], first: 0, ...parts,
});
const call = (id: string, bytes: number, predicted: number | null): object => ({
  id, graph: 'g0.fw.fused', label: id.slice(-2), name: 'mul', fate: 'fused', bytes, share: bytes / 400, lines: [2], seconds: null, predicted,
});
const kernel = (id: string, loops: string[]): object => ({ id, name: id, graph: 'g0.fw.fused', loops, schedule: 'rows', sources: {} });

/** Two kernels which both compute loop l1, in a module; the forward graph keeps what k1 gives out. */
async function sheet(): Promise<Sheet> {
  const drawing: Drawing = {
    graph: 'g0.fw.fused', title: '', inner: 'g0.fw.loops', labels: ['x', 'k0', 'k1'], fates: '-ff', left_out: [], description: '',
    groups: [
      group({ id: 'root', parent: -1, kind: 'root', rows: [[0, 50, 30], [-1, 50, 90]], edges: [[0, 0, 1, 50, 50]] }),
      group({ id: 'g0.fw.fused/block', rows: [[-2, 20, 40, -3, 70, 40]], edges: [[0, -1, 0, 50, 20], [0, -1, 1, 50, 70]] }),
      group({ id: 'g0.fw.k0', parent: 1, kind: 'kernel', label: 'k0 mul', rows: [[3, 20, 30], [4, 20, 30]], edges: [[3, 0, 1, 20, 20]] }),
      group({ id: 'g0.fw.k1', parent: 1, kind: 'kernel', label: 'k1 mul', rows: [[3, 20, 30]] }),
    ],
  };
  const payload = {
    schema: 'nbcompile.compilation/1', id: 'r',
    graphs: [
      { id: 'g0.fw', stage: 'forward', title: '', nodes: [node('g0.fw.n1', 'compute'), node('g0.fw.n2', 'compute')], saved: ['g0.fw.n1'] },
      { id: 'g0.fw.loops', stage: 'loops', title: '', nodes: [node('g0.fw.l1', 'pointwise', ['g0.fw.n1']), node('g0.fw.l2', 'pointwise', ['g0.fw.n2'])] },
      {
        id: 'g0.fw.fused', stage: 'fused', title: '', outputs: ['g0.fw.k1'],
        nodes: [node('g0.fw.x', 'input'), node('g0.fw.k0', 'kernel'), node('g0.fw.k1', 'kernel', [], { module: 'block' })],
      },
    ],
    kernels: [kernel('g0.fw.k0', ['g0.fw.l1', 'g0.fw.l2']), kernel('g0.fw.k1', ['g0.fw.l1'])],
    view: {
      title: '', subtitle: '', facts: [], strip: [], lines: [], roofline: null, timings: [], schedules: {}, kernels: [], schema: 'nbcompile.scene/1',
      verdict: { text: '', tone: 'none', detail: '' }, drawings: [drawing],
      calls: [call('g0.fw.k0', 300, 4e-6), call('g0.fw.k1', 100, 1e-6)],
    },
  };
  const host = { theme: signal('light' as const), kernel: signal(null), needs: '', open: signal(true), charts: () => Promise.reject(new Error('none')) };
  const state = new State(await read(payload), host);
  const graph = state.data.record.graphs[2];
  const shown = state.data.scene?.drawings[0];
  if (!graph || !shown) throw new Error('no graph');
  return new Sheet(state, graph, shown);
}

function made(from: Overlay | string): Overlay {
  if (typeof from === 'string') throw new Error(from);
  return from;
}

describe('Sheet', () => {
  it('lights a loop only in the kernels that are lit, and what holds it', async () => {
    const { drawing, state } = await sheet();
    const of = new Sheet(state, state.data.record.graphs[2] as never, drawing);
    const geometry = place(drawing, new Set([1, 2, 3]));
    const lit = state.around({ ids: ['g0.fw.k1'] });
    const marks = of.lit(geometry, lit);
    const lights = geometry.boxes.filter((_, at) => marks[at] === 1).map(({ ref, group: at }) => [ref, at]);
    expect(lights).toEqual([[-1, 0], [-3, 1], [3, 3]]);
  });

  it('lights a closed group for what is in it', async () => {
    const of = await sheet();
    const geometry = place(of.drawing, new Set());
    const lit = of.state.around({ ids: ['g0.fw.l2'] });
    expect([...of.lit(geometry, lit)]).toEqual([0, 1]);
  });

  it('lights an edge when its value and both ends are', async () => {
    const of = await sheet();
    const drawn = picture(of, place(of.drawing, new Set([1, 2, 3])), made(overlay(of, 'fate')));
    const lit = of.state.around({ ids: ['g0.fw.k0'] });
    const edges = litEdges(drawn, of.lit(drawn.geometry, lit), lit.ids);
    expect(drawn.geometry.edges.filter((_, at) => edges[at] === 1).map(({ value, group: at }) => [value, at])).toEqual([[3, 2]]);
  });

  it('points a module at the kernels in it, a kernel at itself', async () => {
    const of = await sheet();
    expect(of.focus(-1).ids).toEqual(['g0.fw.k0', 'g0.fw.k1']);
    expect(of.focus(-2).ids).toEqual(['g0.fw.k0']);
    expect(of.focus(4).ids).toEqual(['g0.fw.l2']);
  });

  it('finds by all words of a query, in closed groups too', async () => {
    const of = await sheet();
    expect(of.find('K1')).toEqual([{ ref: -3, group: 1 }]);
    expect(of.find('l1 [4,8]')).toEqual([{ ref: 3, group: 2 }, { ref: 3, group: 3 }]);
    expect(of.find('  ')).toEqual([]);
  });
});

describe('overlay', () => {
  it('colours by the bytes of calls, a group by the sum of its own', async () => {
    const of = await sheet();
    const bytes = made(overlay(of, 'bytes'));
    expect(bytes.of(-2)).toEqual({ heat: 5, text: '300 B' });
    expect(bytes.of(-3)).toEqual({ heat: 3, text: '100 B' });
    expect(bytes.of(-1)?.text).toBe('400 B');
    expect(bytes.of(0)).toBeNull();
    expect(bytes.of(3)).toBeNull();
  });

  it('says that times are predicted where none was measured', async () => {
    const time = made(overlay(await sheet(), 'time'));
    expect(time.about).toContain('predicted');
    expect(time.of(-2)?.text).toBe('4 µs');
  });

  it('marks what gives out a saved tensor', async () => {
    const saved = made(overlay(await sheet(), 'saved'));
    expect(saved.of(-3)?.text).toBe('saves 128 B');
    expect(saved.of(-2)).toBeNull();
  });

  it('says why there is none', async () => {
    expect(overlay(await sheet(), 'error')).toContain('no errors');
  });
});
