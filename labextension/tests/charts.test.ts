import { expect, test } from 'vitest';
import type { ScenePoint, SceneRoofline, TimingRow } from '../src/record/generated/scene';
import { fromSlider, toSlider } from '../src/explorer/play/controls';
import { plain, type Figure } from '../src/explorer/timing/Chart';
import { bars, breakEven, inWords, placed, range, reach, spread } from '../src/explorer/timing/contestants';
import { roofline } from '../src/explorer/timing/roofline';
import { steps, timeTicks } from '../src/explorer/timing/scales';
import { measure } from '../src/explorer/timing/Timeline';
import { record } from './records';

const COLOURS = { fused: '#1', library: '#2', break: '#3', bg: '#4', line: '#5', ink: '#6', quiet: '#7', eager: '#8', font: 'serif' };
const ROW: TimingRow = {
  measurement: 0, contestant: 'eager', mode: 'default', own: false, counts: true, reason: '', median: 0.002, p10: 0.0018, p90: 0.0025, low: null, high: null,
  cold: null, warm: null, first: null, ratio: 1, break_even: null, never: false,
};
const OURS: TimingRow = { ...ROW, contestant: 'nbcompile', own: true, median: 0.001, p10: 0.0009, p90: 0.0012, low: null, high: null, cold: 0.5, ratio: 2, break_even: 500 };

type Trace = { x: number[]; y: number[]; marker?: { color?: unknown; symbol?: unknown }; error_x?: { array: number[]; arrayminus: number[] }; customdata?: string[] };
const traces = (figure: Figure): Trace[] => figure.data as unknown as Trace[];

test('bars: a bar a time with its spread; what did not run compiled has none', () => {
  const rows = [ROW, OURS, { ...ROW, contestant: '<i>tvm', counts: false, reason: 'not installed' }];
  const { data, layout } = bars(rows)(COLOURS, 600);
  const [bar] = traces({ data, layout });
  expect(bar?.x).toEqual([0.002, 0.001]);
  expect(bar?.marker?.color).toEqual(['#8', '#1']);
  expect(bar?.error_x?.array[1]).toBeCloseTo(0.0002);
  expect(bar?.error_x?.arrayminus[0]).toBeCloseTo(0.0002);
  expect(layout.annotations?.map((each) => each.text)).toEqual(['2 ms', '1 ms · 2.0× · compile 0.5 s', 'did not run compiled']);
  expect(inWords(rows)).toContain('<i>tvm did not run compiled: not installed');
  expect((layout.yaxis as { ticktext: string[] }).ticktext[2]).toBe('&lt;i&gt;tvm');
  expect(plain('a & <b>')).toBe('a &amp; &lt;b&gt;');
});

test('numbers that no axis has are not drawn, and leave the others as they are', () => {
  const absurd = { ...OURS, median: 1e300, p90: -1, break_even: 1e300 };
  const [bar] = traces(bars(placed([ROW, absurd]))(COLOURS, 600));
  expect(bar?.x).toEqual([0.002]);
  expect(placed([ROW, OURS])).toEqual([ROW, OURS]);
  expect(placed([absurd])[0]).toMatchObject({ median: null, p90: null, break_even: null, cold: 0.5 });
});

test('break-even: ahead of eager from where the compile is paid', () => {
  expect(reach([ROW, OURS])).toBe(675);
  const { data, layout } = breakEven([ROW, OURS])(COLOURS, 600);
  const [line, rings] = traces({ data, layout });
  expect(line?.y[0]).toBe(-0.5);
  expect(line?.y[line.y.length - 1]).toBeCloseTo(675 * 0.001 - 0.5);
  expect(rings?.x).toEqual([500]);
  expect(rings?.y).toEqual([0]);
  // One that never pays off is shown to be falling behind, with no crossing.
  const never = traces(breakEven([ROW, { ...OURS, median: 0.003, break_even: null, never: true }])(COLOURS, 600));
  expect(never[1]?.x).toEqual([]);
  expect((never[0]?.y[24] ?? 0) < -0.5).toBe(true);
});

test('samples: a few late ones do not press the others together', () => {
  const usual = Array.from({ length: 99 }, (_, place) => 0.001 + place * 1e-6);
  const { low, high } = range([[...usual, 1]]);
  expect(low).toBeLessThan(0.001);
  expect(high).toBeLessThan(0.002);
  expect(range([[]])).toEqual({ low: 0, high: 1e-9 });
});

test('ticks are round and in our words', () => {
  expect(steps(0, 10, 5)).toEqual([0, 2, 4, 6, 8, 10]);
  expect(timeTicks(0.0138, 0.018, 3).ticktext).toEqual(['14 ms', '16 ms', '18 ms']);
  expect(steps(3, 3, 4)).toEqual([3]);
});

test('labels of lines that end together are moved apart', () => {
  const heights = spread([0.5, 0.51, 0.1], 0.1);
  expect((heights[1] ?? 0) - (heights[0] ?? 0)).toBeCloseTo(0.1);
  expect(heights[2]).toBe(0.1);
});

const POINT: ScenePoint = {
  kernel: 'g0.fw.k0', label: 'k0', bytes: 1000, flops: 1000, bound: 'memory', measured: true, seconds: 2e-9, limit: 1e-9, intensity: 1,
  flops_per_second: 5e11, bytes_per_second: 5e11, share: 0.5,
};
const ROOF: SceneRoofline = { target: 'cuda:90', title: 'chip', summary: '', bandwidth: 1e12, float32_rate: 1e14, matrix_rate: 1e15, points: [] };

test('roofline: measured and predicted differ in shape; points carry their kernels', () => {
  const points = [
    POINT,
    { ...POINT, kernel: 'k1', label: 'k1', measured: false, seconds: 1e-9 },
    { ...POINT, kernel: 'k2', label: 'k2', flops: 0, intensity: 0, flops_per_second: 0 },
    { ...POINT, kernel: 'k3', label: 'k3', bound: 'launch' as const, seconds: 1, flops_per_second: 1000 },
  ];
  const all = traces(roofline({ ...ROOF, points }, () => 'name')(COLOURS, 500));
  const marks = all[all.length - 1];
  expect(marks?.customdata).toEqual(['g0.fw.k0', 'k1', 'k2', 'k3']);
  expect(marks?.marker?.symbol).toEqual(['circle', 'circle-open', 'circle', 'triangle-down']);
  expect(marks?.x[0]).toBe(0);
  expect(marks?.y[0]).toBeCloseTo(Math.log10(5e11));
  // On the roof where its time is the limit; without arithmetic, left of everything and as far below its start.
  expect(marks?.y[1]).toBeCloseTo(12);
  expect(marks?.x[2]).toBeLessThan(Math.min(...(all[0]?.x ?? [])));
  expect((all[0]?.y[0] ?? 0) - (marks?.y[2] ?? 0)).toBeCloseTo(Math.log10(2));
});

test('the strip is of times where every call has one, else of bytes', () => {
  const calls = record('small').scene?.calls ?? [];
  expect(measure(calls).title).toContain('bytes');
  const timed = calls.map((call, place) => ({ ...call, seconds: place + 1 }));
  expect(timed.map((call) => measure(timed).of(call))).toEqual(calls.map((_, place) => place + 1));
  expect(measure(timed.map((call, place) => (place ? call : { ...call, seconds: null }))).of(timed[0] ?? never())).toBe(calls[0]?.bytes);
});

function never(): never {
  throw new Error('no calls');
}

test('sizes are felt by their ratio, and round ones are near', () => {
  const size = { name: '100', extent: 100, where: ['x[0]'], low: 1, high: 1600 };
  for (const extent of [1, 64, 100, 256, 1600]) expect(fromSlider(toSlider(extent, size), size)).toBe(extent);
  expect(toSlider(40, size)).toBeCloseTo(500, -1);
  for (let place = 0; place <= 1000; place += 7) {
    const extent = fromSlider(place, size);
    expect(extent).toBeGreaterThanOrEqual(1);
    expect(extent).toBeLessThanOrEqual(1600);
  }
});
