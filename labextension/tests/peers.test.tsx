// @vitest-environment happy-dom
import { afterEach, expect, test } from 'vitest';
import { match } from '../src/explorer/compare/match';
import { candidates } from '../src/explorer/compare/sources';
import { read } from '../src/record/read';
import { opened, until, type Opened } from './hosts';
import { packed, payloadOf, record } from './records';

// Browsers tell of a new selection later; happy-dom at once, in the middle of CodeMirror's own update.
document.addEventListener('selectionchange', (event) => event.stopImmediatePropagation());

let open: Opened | null = null;
afterEach(() => {
  open?.explorer.dispose();
  open = null;
  document.body.replaceChildren();
});

/** A record with a peer. */
function beside(changes: Record<string, unknown> = {}): Record<string, unknown> {
  return { ...payloadOf('small'), peers: [{ ...payloadOf('no_fuse'), id: 'peer', backend: 'inductor', ...changes }] };
}

test('a peer is a record with its scene, and has no peers itself', async () => {
  const alone = record('no_fuse');
  const { record: own, peers } = await read(packed(beside({ peers: [payloadOf('edited')] })));
  expect(peers).toEqual([{ ...alone, record: { ...alone.record, id: 'peer', backend: 'inductor' } }]);
  expect(peers[0]?.scene?.kernels.length).toBe(alone.record.kernels.length);
  expect(own.peers).toEqual([]);
  await expect(read(beside({ graphs: ['g9.fx'] }))).rejects.toThrow('peers.0.graphs.0');
  await expect(read({ ...beside(), peers: Array(9).fill({ id: 'x' }) })).rejects.toThrow('peers must NOT have more than 8 items');
});

test('the code pane switches between the compilers, and one line lights the kernels of both', async () => {
  open = await opened(beside(), null);
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
  open = await opened(beside(), null);
  const { element, now } = open;
  expect(candidates(now()).map((each) => [each.label, each.from])).toEqual([['inductor', 'beside it']]);
  now().panel.value = 'compare';
  const box = await until(() => element.querySelector<HTMLInputElement>('.nbc-candidate input[type="checkbox"]'));
  expect(box.checked).toBe(true);
  expect(element.querySelector('.nbc-comparison')).not.toBeNull();
});

test('loops of two compilers are matched by what they were made from, whatever each calls them', () => {
  const own = record('small');
  const graphs = own.record.graphs.map((graph) => ({
    ...graph, nodes: graph.nodes.map((node) => (['pointwise', 'reduction'].includes(node.kind) ? { ...node, op: 'loop' } : node)),
  }));
  const fates = (backend: string): string[] =>
    match({ ...own, record: { ...own.record, graphs, backend } }, own).calls.filter((pair) => pair.after.some((call) => call.fate === 'fused')).map((pair) => pair.fate);
  expect(fates('inductor').length).toBeGreaterThan(0);
  expect(fates('inductor').every((fate) => fate === 'unchanged')).toBe(true);
  expect(fates('nbcompile')).toContain('added');
});
