// @vitest-environment happy-dom
import { afterEach, expect, test } from 'vitest';
import { match } from '../src/explorer/compare/match';
import { candidates } from '../src/explorer/compare/sources';
import { RecordError, unpack } from '../src/record/unpack';
import { fixture, opened, until, type Opened } from './hosts';
import { payloadOf } from './records';

// Browsers tell of a new selection later; happy-dom at once, in the middle of CodeMirror's own update.
document.addEventListener('selectionchange', (event) => event.stopImmediatePropagation());

let open: Opened | null = null;
afterEach(() => {
  open?.explorer.dispose();
  open = null;
  document.body.replaceChildren();
});

/** A record with a peer, as Python packs one: what is the same in both is left out of it. */
function beside(changes: Record<string, unknown> = {}): Record<string, unknown> {
  const whole = payloadOf('no_fuse');
  const [first, ...others] = whole['graphs'] as { id: string }[];
  const peer: Record<string, unknown> = { ...whole, id: 'peer', backend: 'inductor', graphs: [first?.id, ...others], ...changes };
  for (const same of ['cell', 'environment']) Reflect.deleteProperty(peer, same);
  return { ...fixture('small'), peers: [peer] };
}

test('a peer is whole: what it leaves out is the record\u2019s', () => {
  const { record, peers } = unpack(beside());
  const [peer] = peers;
  expect(peer?.record.cell).toBe(record.cell);
  expect(peer?.record.environment).toBe(record.environment);
  expect(peer?.record.graphs[0]).toBe(record.graphs[0]);
  expect(peer?.record.graphs.length).toBe(unpack(payloadOf('no_fuse')).record.graphs.length);
  expect(peer?.record.kernels.length).toBeGreaterThan(record.kernels.length);
  expect(peer?.scene?.kernels.length).toBe(peer?.record.kernels.length);
  expect(() => unpack(beside({ graphs: ['g9.fx'] }))).toThrow(RecordError);
  expect(() => unpack({ ...beside(), peers: Array(9).fill({}) })).toThrow('too many peers');
});

test('the code pane switches between the compilers, and one line lights the kernels of both', async () => {
  open = opened(beside(), null);
  const { element, now } = open;
  const tab = (name: string): HTMLElement =>
    [...element.querySelectorAll<HTMLElement>('[aria-label="compiler"] [role="tab"]')].find((each) => each.textContent === name) as HTMLElement;
  const kernels = (): (string | null)[] => [...element.querySelectorAll('.nbc-kernels option')].map((each) => each.getAttribute('value'));
  const [peer] = now().peers;
  if (!peer) throw new Error('no peer');
  expect(tab('nbcompile').getAttribute('aria-selected')).toBe('true');
  expect(kernels()).toEqual(now().data.record.kernels.map((kernel) => kernel.id));
  tab('inductor').click();
  await until(() => tab('inductor').getAttribute('aria-selected') === 'true');
  expect(kernels()).toEqual(peer.data.record.kernels.map((kernel) => kernel.id));

  // What is pointed at in either is lit in both, by the lines of the cell.
  const last = peer.data.record.kernels[peer.data.record.kernels.length - 1];
  const [line] = peer.links.lines([last?.id ?? '']);
  if (!last || line === undefined) throw new Error('no line');
  now().hover({ ids: [], line });
  expect(peer.lit.value?.ids).toContain(last.id);
  now().hover(null);
  expect(peer.lit.value).toBeNull();
  peer.hover({ ids: [last.id] });
  expect(now().lit.value?.lines).toContain(line);
  expect(now().data.record.kernels.some((kernel) => now().lit.value?.ids.has(kernel.id))).toBe(true);
  peer.hover(null);
  now().pin({ ids: [], line });
  expect(peer.links.lines([peer.kernel.value])).toContain(line);
});

test('the compare panel offers the peer, and shows it at first', async () => {
  open = opened(beside(), null);
  const { element, now } = open;
  expect(candidates(now()).map((each) => [each.label, each.from])).toEqual([['inductor', 'beside it']]);
  now().panel.value = 'compare';
  const box = await until(() => element.querySelector<HTMLInputElement>('.nbc-candidate input[type="checkbox"]'));
  expect(box.checked).toBe(true);
  expect(element.querySelector('.nbc-comparison')).not.toBeNull();
});

test('loops of two compilers are matched by what they were made from, whatever each calls them', () => {
  const own = payloadOf('small');
  const rows = own['operators'] as { op: string; kind: string }[];
  const operators = rows.map((row) => (['pointwise', 'reduction'].includes(row.kind) ? { ...row, op: 'loop' } : row));
  const fates = (backend: string): string[] => match(unpack({ ...own, operators, backend }), unpack(own)).calls.filter((pair) => pair.after.some((call) => call.fate === 'fused')).map((pair) => pair.fate);
  expect(fates('inductor').length).toBeGreaterThan(0);
  expect(fates('inductor').every((fate) => fate === 'unchanged')).toBe(true);
  expect(fates('nbcompile')).toContain('added');
});
