import { expect, test } from 'vitest';
import { settings } from '../src/explorer/compare/differences';
import { common, hunks, lineMap } from '../src/explorer/compare/lines';
import { match, type Pair } from '../src/explorer/compare/match';
import { record } from './records';

function told(pairs: readonly Pair[]): string[] {
  const names = (calls: Pair['before']): string => calls.map((call) => call.label).join(' ');
  return pairs.map((pair) => `${pair.fate}: ${names(pair.before)} | ${names(pair.after)}`);
}

test('a record is the same as itself', () => {
  const { calls, decisions, stages } = match(record('small'), record('small'));
  expect(calls.length).toBeGreaterThan(1);
  expect(calls.every((pair) => pair.fate === 'unchanged')).toBe(true);
  expect(decisions).toEqual([]);
  expect(stages.flatMap((each) => [...each.added, ...each.removed])).toEqual([]);
});

test('without fusion, a kernel is split into the kernels of its loops, and the other way round', () => {
  const [fused, apart] = [record('small'), record('no_fuse')];
  const there = match(fused, apart);
  const split = there.calls.filter((pair) => pair.fate === 'split');
  expect(split.length).toBeGreaterThan(0);
  const loops = new Map(fused.record.kernels.map((kernel) => [kernel.id, kernel.loops]));
  for (const pair of split) expect(pair.after).toHaveLength(loops.get(pair.before[0]?.id ?? '')?.length ?? 0);
  expect(there.calls.find((pair) => pair.before[0]?.name === 'mm')).toMatchObject({ fate: 'unchanged', after: [{ name: 'mm' }] });
  expect(there.calls.flatMap((pair) => pair.after).map((call) => call.id).sort()).toEqual(apart.scene?.calls.map((call) => call.id).sort());
  expect(match(apart, fused).calls.filter((pair) => pair.fate === 'merged')).toHaveLength(split.length);
});

test('decisions that fell differently are told, those that did not are not', () => {
  const [fused, apart] = [record('small'), record('no_fuse')];
  const accepted = fused.record.decisions.filter((each) => each.accepted).length;
  const differing = match(fused, apart).decisions;
  expect(differing.filter((pair) => pair.before?.accepted && pair.after?.accepted === false).length).toBeGreaterThan(0);
  expect(differing.filter((pair) => pair.before?.accepted)).toHaveLength(accepted);
  expect(differing.every((pair) => pair.before?.accepted !== pair.after?.accepted)).toBe(true);
  expect(settings(fused, apart)).toContainEqual({ name: 'fuse', before: 'true', after: 'false' });
});

test('in an edited cell lines have moved, and what came from them is still found', () => {
  const [before, after] = [record('small'), record('edited')];
  const { stages, calls, nodes } = match(before, after);
  const fx = stages.find((each) => each.stage === 'fx');
  // One line is new, and one was changed from a difference to a sum.
  expect(fx?.added.map((node) => node.op)).toEqual(['operator.truediv', 'operator.add']);
  expect(fx?.removed.map((node) => node.op)).toEqual(['operator.sub']);
  const softmax = before.record.graphs.flatMap((graph) => graph.nodes).find((node) => node.op === 'torch.softmax');
  const moved = after.record.graphs.flatMap((graph) => graph.nodes).find((node) => node.id === nodes.get(softmax?.id ?? ''));
  expect(moved?.op).toBe('torch.softmax');
  expect(moved?.spans[0]?.line).toBe((softmax?.spans[0]?.line ?? 0) + 2);
  expect(told(calls).find((each) => each.includes('mm'))).toBe('unchanged: mm | mm');
  expect(calls.some((pair) => pair.fate === 'changed')).toBe(true);
});

test('a backend that records no kernels is compared by its graphs', () => {
  const { calls, decisions, stages } = match(record('small'), record('inductor'));
  expect(calls.every((pair) => pair.fate === 'removed')).toBe(true);
  expect(decisions).toEqual([]);
  expect(stages.find((each) => each.stage === 'fx')).toMatchObject({ both: true, added: [], removed: [] });
  expect(stages.find((each) => each.stage === 'loops')).toMatchObject({ both: false });
  expect(match(record('inductor'), record('small')).calls.every((pair) => pair.fate === 'added')).toBe(true);
});

test('lines: equal ones first, then those that have most words in common', () => {
  expect(common(['a', 'b', 'c'], ['a', 'x', 'c'])).toEqual([[0, 0], [2, 2]]);
  expect(common(['x', 'a', 'b'], ['a', 'b', 'x'])).toEqual([[1, 0], [2, 1]]);
  const map = lineMap('%%compile\nh = x @ w\nz = gelu(h) * s\nz', '%%compile\n# new\nh = x @ w\nz = gelu(h, tanh) * s\nz');
  expect([...map]).toEqual([[1, 1], [2, 3], [3, 4], [4, 5]]);
  expect(lineMap('a = 1', 'totally(different)').size).toBe(0);
});

test('hunks are what a unified diff shows', () => {
  const before = Array.from({ length: 30 }, (_, place) => `line ${place + 1}`);
  const after = before.map((line, place) => (place === 4 || place === 24 ? `${line}!` : line));
  const parts = hunks(before.join('\n'), after.join('\n'), 2);
  expect(parts).toHaveLength(2);
  expect(parts[0]?.map((line) => `${line.sign}${line.text}`)).toEqual([' line 3', ' line 4', '-line 5', '+line 5!', ' line 6', ' line 7']);
  expect(parts[1]?.[2]).toEqual({ sign: '-', text: 'line 25', before: 25, after: null });
  expect(hunks('same', 'same')).toEqual([]);
});
