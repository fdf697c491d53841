// @vitest-environment happy-dom
import { afterEach, describe, expect, test } from 'vitest';
import { Replay } from '../src/explorer/fusion/replay';
import { chosenRows, overruling, rowsOf, type Row } from '../src/explorer/fusion/rows';
import { fixture, opened, until, type Opened } from './hosts';
import { record as recordOf } from './records';

let open: Opened | null = null;
afterEach(() => {
  open?.explorer.dispose();
  open = null;
  document.body.replaceChildren();
});

describe.each(['small', 'triton'] as const)('the decisions of %s, replayed', (name) => {
  const { record } = recordOf(name);
  const replay = new Replay(record);

  test('end in the kernels of the record', () => {
    const fused = record.graphs.filter((graph) => graph.stage === 'fused').map((graph) => graph.id);
    const groups = fused.flatMap((graph) => [...new Set(replay.groups(graph).values())]);
    const sets = (all: string[][]): string[] => all.map((ids) => [...ids].sort().join(' ')).sort();
    expect(record.kernels.length).toBeGreaterThan(0);
    expect(sets(groups)).toEqual(sets(record.kernels.map((kernel) => kernel.loops)));
  });

  test('join two groups at each decision that was accepted, and none at the others', () => {
    let joined = 0;
    for (let step = 0; step < replay.steps; step++) {
      const moment = replay.at(step);
      if (!moment) throw new Error(`no step ${step}`);
      const [before, after] = [moment.before.flat().sort(), moment.after.flat().sort()];
      expect(after).toEqual(before);
      expect(moment.after.length).toBe(moment.decision.accepted ? 1 : moment.before.length);
      joined += moment.before.length - moment.after.length;
    }
    const loops = record.kernels.reduce((sum, kernel) => sum + kernel.loops.length, 0);
    expect(joined).toBe(loops - record.kernels.length);
    expect(replay.at(replay.steps)).toBeNull();
  });
});

async function rows(): Promise<Row[]> {
  open = await opened(fixture('small'), null);
  return rowsOf(open.now());
}

test('rows are filtered, searched and sorted', async () => {
  const all = await rows();
  const refused = chosenRows(all, { shown: 'refused', sorted: 'bytes', search: '' });
  expect(refused.length).toBeGreaterThan(0);
  expect(refused.every((row) => !row.decision.accepted)).toBe(true);
  const bytes = refused.map((row) => row.decision.bytes_saved);
  expect(bytes).toEqual([...bytes].sort((a, b) => b - a));
  const found = chosenRows(all, { shown: 'all', sorted: 'order', search: 'LIBRARY call' });
  expect(found.length).toBeGreaterThan(0);
  expect(found.every((row) => row.decision.code === 'library-call')).toBe(true);
});

test('a decision is overruled by the names of its loops, unless it cannot be', async () => {
  const { record } = recordOf('small');
  const fused = (await rows()).find((row) => row.decision.accepted) as Row;
  const pair = [fused.producer, fused.consumer];
  expect(overruling(record, fused)).toEqual({ settings: { no_fuse: [pair], force_fuse: [] } });
  const apart = { ...record, options: { ...record.options, no_fuse: [pair, ['a', 'b']], force_fuse: [] } };
  const refused = { ...fused, decision: { ...fused.decision, accepted: false, code: 'user', overruled: true } };
  expect(overruling(apart, refused)).toEqual({ settings: { no_fuse: [['a', 'b']], force_fuse: [] } });
  const costly = { ...fused, decision: { ...fused.decision, accepted: false, code: 'recompute', forceable: true } };
  expect(overruling(record, costly)).toEqual({ settings: { no_fuse: [], force_fuse: [pair] } });
  const illegal = { ...costly, decision: { ...costly.decision, forceable: false } };
  expect(overruling(record, illegal)).toHaveProperty('why');
  expect(overruling({ ...record, options: { no_fuse: 'a:b', force_fuse: [[1, 2]] } }, fused)).toHaveProperty('settings');
});

test('a switch asks the kernel for the change and has the focus again when it is shown', async () => {
  const payload = fixture('small');
  const asked: Record<string, unknown>[] = [];
  open = await opened(payload, (method, params) => {
    asked.push({ method, ...params });
    return Promise.resolve({ payload: { ...payload, id: 'changed' } });
  });
  const { element, now } = open;
  const toggle = element.querySelector<HTMLButtonElement>('[role=switch][aria-checked=true]') as HTMLButtonElement;
  const label = toggle.getAttribute('aria-label') ?? '';
  toggle.click();
  await until(() => now().data.record.id === 'changed');
  const pair = label.replace('fuse ', '').split(' → ');
  expect(asked).toEqual([{ method: 'change', record: payload.id, no_fuse: [pair], force_fuse: [] }]);
  await until(() => document.activeElement?.getAttribute('aria-label') === label);
  expect(element.querySelector('.nbc-changed')?.textContent).toContain(`${pair.join(' → ')} apart`);
});

test('without a kernel the switches say what they need, and illegal pairs say why', async () => {
  open = await opened(fixture('small'), null);
  const switches = [...open.element.querySelectorAll<HTMLButtonElement>('[role=switch]')];
  expect(switches.length).toBe(open.now().data.record.decisions.length);
  expect(switches.every((each) => each.disabled)).toBe(true);
  const titles = new Set(switches.map((each) => each.title));
  expect(titles).toContain('Open the notebook.');
  expect([...titles].some((title) => title.startsWith('This pair cannot be one kernel'))).toBe(true);
});

test('arrow keys step through the decisions and light each', async () => {
  open = await opened(fixture('small'), null);
  const { element, now } = open;
  const slider = element.querySelector<HTMLInputElement>('.nbc-stepper input') as HTMLInputElement;
  slider.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', bubbles: true }));
  const second = now().data.record.decisions[1];
  expect(now().pinned.value?.ids[0]).toBe(second?.id);
  await until(() => element.querySelector('.nbc-stepper')?.textContent?.includes(`2 of ${now().data.record.decisions.length}`));
  slider.dispatchEvent(new KeyboardEvent('keydown', { key: 'End', bubbles: true }));
  expect(now().pinned.value?.ids[0]).toBe(now().data.record.decisions.at(-1)?.id);
});
