// @vitest-environment happy-dom
import { afterEach, expect, test } from 'vitest';
import { PlayError } from '../src/explorer/host';
import { runChange, undo } from '../src/explorer/play';
import { compared, spreadOf } from '../src/explorer/spread';
import { fixture, opened, type Answer, type Opened } from './hosts';

const payload = fixture('small');
let open: Opened | null = null;

afterEach(() => {
  open?.explorer.dispose();
  open = null;
  document.body.replaceChildren();
});

async function explorer(answer: Answer | null): Promise<Opened> {
  open = await opened(payload, answer);
  return open;
}

test('a change is shown in place, remembers what it replaced, and can be undone', async () => {
  const asked: object[] = [];
  const { element, now } = await explorer((method, params) => {
    asked.push({ method, ...params });
    return Promise.resolve({ payload: { ...payload, id: 'changed' } });
  });
  now().panel.value = 'timing';
  expect(await runChange(now(), { mode: 'max-autotune' }, 'max-autotune')).toBe(true);
  expect(asked).toEqual([{ method: 'change', record: payload.id, mode: 'max-autotune' }]);
  expect(now().data.record.id).toBe('changed');
  expect(now().panel.value).toBe('timing');
  expect(element.querySelector('.nbc-changed')?.textContent).toContain('max-autotune');
  undo(now());
  expect(now().data.record.id).toBe(payload.id);
  await Promise.resolve();
  expect(element.querySelector('.nbc-changed')).toBeNull();
});

test('progress is shown while the kernel works, and Cancel reaches it', async () => {
  let fail: (error: PlayError) => void = () => undefined;
  const { element, now, cancels } = await explorer((_method, _params, progress) => {
    progress?.({ text: 'building 4 kernels', done: 2, of: 5 });
    return new Promise((_resolve, reject) => (fail = reject));
  });
  const done = runChange(now(), { fuse: false }, 'no fusion');
  await Promise.resolve();
  expect(element.querySelector('.nbc-running')?.textContent).toContain('building 4 kernels');
  expect(element.querySelector('progress')?.value).toBe(2);
  expect(await runChange(now(), { fuse: true }, 'twice')).toBe(false);
  element.querySelector<HTMLButtonElement>('.nbc-running button')?.click();
  expect(cancels()).toBe(1);
  fail(new PlayError('Interrupted', '', '', null, true));
  expect(await done).toBe(false);
  await Promise.resolve();
  expect(element.querySelector('[role=alert]')?.textContent).toContain('Cancelled');
  expect(now().data.record.id).toBe(payload.id);
});

test('without a kernel a change says what it needs', async () => {
  const { now } = await explorer(null);
  expect(await runChange(now(), { fuse: false }, 'no fusion')).toBe(false);
  expect(now().play.failed.value?.message).toBe('Open the notebook.');
});

test('an answer for a record that has been replaced meanwhile is not shown', async () => {
  let answer: (value: unknown) => void = () => undefined;
  const { now } = await explorer(() => new Promise((resolve) => (answer = resolve)));
  const old = now();
  const done = runChange(old, { fuse: false }, 'no fusion');
  open?.explorer.update({ ...payload, id: 'other' });
  answer({ payload: { ...payload, id: 'changed' } });
  await done;
  await open?.explorer.ready;
  expect(now().data.record.id).toBe('other');
  expect(now().play.past.value).toEqual([]);
});

test('a difference is put in words, and is one where the medians are known well enough', () => {
  const known = (median: number, low: number | null, high: number | null) => ({ p10: median / 2, median, p90: median * 2, low, high });
  const slow = known(1, 0.97, 1.03);
  expect(compared(slow, known(0.5, 0.48, 0.52))).toEqual({ text: '2.0× faster', tone: 'good' });
  expect(compared(known(0.5, 0.48, 0.52), slow)).toEqual({ text: '2.0× slower', tone: 'bad' });
  expect(compared(slow, known(0.95, 0.9, 0.98))).toEqual({ text: '1.05× faster, no clear difference', tone: 'even' });
  expect(compared(slow, known(0.5, null, null)).tone).toBe('even');
  expect(compared(slow, known(0.98, 0.979, 0.981))).toEqual({ text: 'as fast', tone: 'even' });
});

test('the interval of a median is that of the record', () => {
  expect(spreadOf([3, 1, 2])).toEqual({ p10: 1.2, median: 2, p90: 2.8, low: null, high: null });
  expect(spreadOf([])).toBeNull();
  const samples = Array.from({ length: 100 }, (_, place) => place);
  expect(spreadOf(samples)).toMatchObject({ low: 37, high: 63 }); // Measurement.median_interval of these
  expect(spreadOf(samples.slice(0, 5))).toMatchObject({ low: 0, high: 4 });
});