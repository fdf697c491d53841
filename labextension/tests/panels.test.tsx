// @vitest-environment happy-dom
import { afterEach, expect, test, vi } from 'vitest';
import { compare } from '../src/explorer/compare/sources';
import { PlayError, type Kernel } from '../src/explorer/host';
import { mount, type Explorer } from '../src/explorer/mount';
import type { Panel, State } from '../src/explorer/state';
import { hostOf, payloadOf } from './records';

const open: Explorer[] = [];
afterEach(() => {
  for (const each of open.splice(0)) each.dispose();
  document.body.replaceChildren();
});

async function show(payload: unknown, panel: Panel, kernel: Kernel | null = null): Promise<{ element: HTMLElement; state: () => State }> {
  const element = document.createElement('div');
  document.body.append(element);
  const explorer = mount(element, payload, hostOf(kernel));
  open.push(explorer);
  await explorer.ready;
  const state = (): State => {
    if (!explorer.state) throw new Error(element.textContent ?? '');
    return explorer.state;
  };
  state().panel.value = panel;
  return { element, state };
}

async function settled(): Promise<void> {
  for (let turn = 0; turn < 4; turn++) await new Promise((resolve) => setTimeout(resolve, 5));
}

function one<T extends Element = HTMLElement>(element: Element, selector: string): T {
  const found = element.querySelector<T>(selector);
  if (!found) throw new Error(`no ${selector} in ${element.textContent}`);
  return found;
}

// -- timing --------------------------------------------------------------------------------------

function timed(rows: object[], measurements: object[]): Record<string, unknown> {
  const payload = payloadOf('small');
  const view = payload['view'] as Record<string, unknown>;
  return { ...payload, measurements, view: { ...view, timings: [{ what: 'cell', about: 'one call', rows }] } };
}

const MEASURED = { what: 'cell', mode: 'default', steady: [0.002, 0.002, 0.0021], threads: 1, graphs: 1, breaks: 0 };
const ROW = { mode: 'default', own: false, counts: true, reason: '', median: 0.002, p10: 0.0019, p90: 0.0022, cold: null, warm: null, first: null, ratio: 1, break_even: null, never: false };

test('timing: without charts the tables hold the numbers, and what ran eagerly has no time', async () => {
  const rows = [
    { ...ROW, measurement: 0, contestant: 'eager' },
    { ...ROW, measurement: 1, contestant: 'nbcompile', own: true, median: 0.001, ratio: 2, cold: 0.5, break_even: 500 },
    { ...ROW, measurement: 2, contestant: 'inductor', counts: false, reason: 'the recompile limit was reached', median: 0.0017 },
  ];
  const names = ['eager', 'nbcompile', 'inductor'];
  const { element } = await show(timed(rows, names.map((contestant) => ({ ...MEASURED, contestant }))), 'timing');
  await settled();
  expect(element.textContent).toContain('The charts could not be loaded (no charts here)');
  const told = [...element.querySelectorAll('.nbc-timings tbody tr')].map((row) => row.textContent ?? '');
  expect(told[1]).toContain('2.0×');
  expect(told[1]).toContain('500 calls');
  expect(told[2]).toContain('did not run compiled: the recompile limit was reached');
  expect(told[2]).not.toContain('1.7 ms');
});

test('timing: a contestant of wrong results, or that raised, is marked in the bars and in the table', async () => {
  const rows = [
    { ...ROW, measurement: 0, contestant: 'eager' },
    { ...ROW, measurement: 1, contestant: 'nbcompile', own: true, median: 0.001, ratio: 2 },
    { ...ROW, measurement: 2, contestant: 'wrong', median: 0.0005, ratio: 4, reason: 'wrong: y is off by 0.1' },
    { ...ROW, measurement: 3, contestant: 'broken', counts: false, median: null, ratio: null, reason: 'raised ValueError: no' },
  ];
  const names = ['eager', 'nbcompile', 'wrong', 'broken'];
  const { element } = await show(timed(rows, names.map((contestant) => ({ ...MEASURED, contestant }))), 'timing');
  await settled();
  const table = [...element.querySelectorAll('.nbc-timings tbody tr')];
  expect(table.map((row) => row.querySelector('th .nbc-tone-bad')?.textContent?.trim() ?? '')).toEqual(['', '', 'wrong: y is off by 0.1', '']);
  expect(table[3]?.querySelector('td.nbc-tone-bad')?.textContent).toBe('raised ValueError: no');

  const bars = [...element.querySelectorAll('.nbc-bar-row')];
  const beside = bars.map((row) => row.querySelector('.nbc-bar-figure:last-child')?.textContent);
  expect(beside).toEqual(['', '2.0×', '✗ wrong', '']);
  expect(bars[2]?.querySelector('.nbc-bar-figure:last-child')?.className).toContain('nbc-tone-bad');
  expect(bars[2]?.getAttribute('title')).toBe('wrong: y is off by 0.1; median 500 µs, p10 1.9 ms, p90 2.2 ms');
  expect(bars[3]?.querySelector('.nbc-bar-track')?.textContent).toBe('raised ValueError: no');
  expect(bars[3]?.getAttribute('title')).toBe('raised ValueError: no');
  expect(bars.some((row) => row.textContent?.includes('did not run compiled'))).toBe(false);
});

test('timing: a call that is pointed at lights its line', async () => {
  const { element, state } = await show(payloadOf('small'), 'timing');
  await settled();
  const call = state().data.scene?.calls.find((each) => each.fate === 'fused');
  const row = [...element.querySelectorAll('.nbc-calls tbody tr')].find((each) => each.textContent?.includes(call?.name ?? '?'));
  row?.dispatchEvent(new MouseEvent('mouseenter'));
  await settled();
  expect([...(state().lit.value?.lines ?? [])].sort()).toEqual(call?.lines);
  expect(one(element, `.nbc-line[data-line="${call?.lines[0]}"]`).className).toContain('nbc-lit');
  expect(element.querySelectorAll('.nbc-timeline-call.nbc-lit').length).toBeGreaterThan(0);
});

// -- guards --------------------------------------------------------------------------------------

test('guards: breaks come first and link to their line; guards can be searched', async () => {
  const payload = payloadOf('small');
  const broken = { ...payload, breaks: [{ reason: '<b>print</b>', hint: 'Move it.', kind: 'cell', spans: [{ line: 4 }] }] };
  const { element, state } = await show(broken, 'guards');
  await settled();
  const note = one(element, '.nbc-broken');
  expect(note.textContent).toContain('<b>print</b>');
  one(note, '.nbc-place').click();
  expect(state().pinned.value).toEqual({ ids: [], line: 4 });
  const { guards } = state().data.record;
  const tensors = guards.filter((guard) => guard.kind === 'TENSOR_MATCH');
  expect(tensors.length).toBeGreaterThan(0);
  expect(tensors.length).toBeLessThan(guards.length);
  const search = element.querySelector<HTMLInputElement>('.nbc-guards input');
  if (!search) throw new Error('nothing to search in');
  search.value = 'tensor_match';
  search.dispatchEvent(new Event('input', { bubbles: true }));
  await settled();
  expect(element.querySelectorAll('.nbc-guard-kind tbody tr')).toHaveLength(tensors.length);
});

// -- play ----------------------------------------------------------------------------------------

const CONTROLS = {
  live: true, reason: '', backend: 'nbcompile', backends: ['nbcompile', 'inductor'], mode: 'default', modes: ['default', 'max-autotune'],
  dynamic: null, dtype: 'float32', dtypes: ['float32', 'float64'], sizes: [{ name: '64', extent: 64, where: ['x[0]'], low: 1, high: 1024 }], fuse: true,
};

function kernel(change: (params: Record<string, unknown>) => unknown, controls: object = CONTROLS) {
  const asked: Record<string, unknown>[] = [];
  const request = async (method: string, params: object): Promise<unknown> => {
    if (method === 'controls') return controls;
    asked.push(params as Record<string, unknown>);
    return change(params as Record<string, unknown>);
  };
  return { asked, kernel: { request: request as Kernel['request'], cancellable: false, cancel: () => undefined } };
}

function choose(element: Element, label: string, value: string): void {
  const control = [...element.querySelectorAll('.nbc-control')].find((each) => each.textContent?.startsWith(label));
  const select = control?.querySelector('select');
  if (!select) throw new Error(`no control ${label}`);
  select.value = value;
  select.dispatchEvent(new Event('change', { bubbles: true }));
}

test('play: without a kernel the controls say what they need', async () => {
  const { element } = await show(payloadOf('small'), 'play');
  await settled();
  expect(one(element, '.nbc-tryout').textContent).toContain('Open the notebook.');
  expect(one<HTMLFieldSetElement>(element, '.nbc-fields').disabled).toBe(true);
  expect(one<HTMLInputElement>(element, '.nbc-extent').value).toBe('64');
});

test('play: a compilation that the kernel does not hold says why', async () => {
  const { element } = await show(payloadOf('small'), 'play', kernel(() => null, { live: false, reason: 'Run the cell again.' }).kernel);
  await settled();
  expect(one(element, '.nbc-tryout').textContent).toContain('Run the cell again.');
  expect(one<HTMLFieldSetElement>(element, '.nbc-fields').disabled).toBe(true);
});

test('play: a change runs at once, is remembered with its kernels, and can be gone back to', async () => {
  const live = kernel((params) => {
    if (params['dtype']) throw new PlayError('Not possible', 'in float64 it raises.', 'Cast w too.', 4);
    return { payload: payloadOf('no_fuse') };
  });
  const { element, state } = await show(payloadOf('small'), 'play', live.kernel);
  await settled();
  const first = state().data.record.id;
  choose(element, 'dtype', 'float64');
  await settled();
  one(element, '.nbc-control .nbc-switch').click();
  await settled();
  expect(live.asked).toEqual([{ record: first, dtype: 'float64' }, { record: first, fuse: false }]);
  const rows = (): string[] => [...element.querySelectorAll('.nbc-history tbody tr')].map((row) => row.textContent ?? '');
  expect(rows()).toHaveLength(3);
  expect(rows().some((row) => row.includes('in float64 it raises.') && row.includes('Cast w too.') && row.includes('line 4'))).toBe(true);
  expect(rows()[2]).toContain(`fusion offnbcompile${state().data.record.kernels.length}`);
  const back = [...element.querySelectorAll<HTMLElement>('.nbc-history tbody tr')].find((row) => row.textContent?.includes('as compiled'));
  back?.click();
  await settled();
  expect(state().data.record.id).toBe(first);
  expect(rows()).toHaveLength(3);
});

test('play: a slider runs what it says once it rests', async () => {
  const live = kernel(() => ({ payload: payloadOf('no_fuse') }));
  const { element } = await show(payloadOf('small'), 'play', live.kernel);
  await settled();
  const slider = one<HTMLInputElement>(element, '.nbc-slider');
  for (const place of ['620', '800', '1000']) {
    slider.value = place;
    slider.dispatchEvent(new Event('input', { bubbles: true }));
    slider.dispatchEvent(new Event('change', { bubbles: true }));
    await settled();
  }
  expect(one<HTMLInputElement>(element, '.nbc-extent').value).toBe('1024');
  expect(live.asked).toEqual([]);
  await new Promise((resolve) => setTimeout(resolve, 400));
  expect(live.asked).toMatchObject([{ sizes: { '64': 1024 } }]);
});

test('play: what is chosen waits for Run where that is wanted', async () => {
  const live = kernel(() => ({ payload: payloadOf('no_fuse') }));
  const { element } = await show(payloadOf('small'), 'play', live.kernel);
  await settled();
  one<HTMLInputElement>(element, '.nbc-auto input').click();
  await settled();
  choose(element, 'mode', 'max-autotune');
  await settled();
  const extent = one<HTMLInputElement>(element, '.nbc-extent');
  extent.value = '128';
  extent.dispatchEvent(new Event('change', { bubbles: true }));
  await settled();
  expect(live.asked).toEqual([]);
  expect(one(element, '.nbc-run').textContent).toContain('max-autotune, x[0] 64 → 128');
  one(element, '.nbc-primary').click();
  await settled();
  expect(live.asked).toMatchObject([{ mode: 'max-autotune', sizes: { '64': 128 } }]);
});

// -- compare -------------------------------------------------------------------------------------

test('compare: with another explorer of the page, and with pins', async () => {
  const { state: other } = await show(payloadOf('small'), 'compare');
  const { element, state } = await show(payloadOf('no_fuse'), 'compare');
  await settled();
  expect(one(element, '.nbc-choose').textContent).toContain('in this page');
  expect(element.querySelector('.nbc-comparison')).toBeNull();
  await compare(state(), [other(), payloadOf('edited')]);
  await settled();
  expect([...element.querySelectorAll('.nbc-facts-table thead th')]).toHaveLength(4);
  const fates = [...element.querySelectorAll('.nbc-pair-fate')].map((each) => each.textContent);
  expect(fates.filter((each) => each?.includes('split')).length).toBeGreaterThan(0);
  expect(one(element, '.nbc-comparison').textContent).toContain('Fusion decisions that differ');
});

test('compare: a changed kernel shows its code as a diff', async () => {
  const { element, state } = await show(payloadOf('edited'), 'compare');
  await compare(state(), [payloadOf('small')]);
  await settled();
  const code = [...element.querySelectorAll<HTMLElement>('.nbc-pairs .nbc-button')];
  expect(code.length).toBeGreaterThan(0);
  code[0]?.click();
  await settled();
  const diff = one(element, '.nbc-pair-code .nbc-diff');
  expect(diff.querySelectorAll('.nbc-added').length).toBeGreaterThan(0);
  expect(diff.getAttribute('aria-label')).toMatch(/code of .*: \d+ lines? removed, \d+ lines? added/);
});

test('compare: a file that is no record says what is wrong with it', async () => {
  const { element } = await show(payloadOf('small'), 'compare');
  await settled();
  const input = one<HTMLInputElement>(element, 'input[type=file]');
  const give = async (text: string): Promise<string> => {
    vi.spyOn(input, 'files', 'get').mockReturnValue([new File([text], 'other.json')] as unknown as FileList);
    input.dispatchEvent(new Event('change', { bubbles: true }));
    await settled();
    return one(element, '.nbc-choose').textContent ?? '';
  };
  expect(await give('{"a": 1}')).toContain('other.json cannot be opened. This is not an nbcompile record');
  expect(await give('not json')).toContain('It is not JSON.');
  expect(await give(JSON.stringify(payloadOf('inductor')))).not.toContain('cannot be opened');
  expect(one(element, '.nbc-comparison').textContent).toContain('The record of inductor holds no kernels');
});
