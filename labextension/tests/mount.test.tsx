// @vitest-environment happy-dom
import { afterEach, expect, test } from 'vitest';
import { mounted } from '../src/explorer/compare/sources';
import { mount, type Explorer } from '../src/explorer/mount';
import { hostOf, packed, packedOf, payloadOf } from './records';

let explorer: Explorer | null = null;
afterEach(() => {
  explorer?.dispose();
  document.body.replaceChildren();
});

function show(payload: unknown): { element: HTMLElement; explorer: Explorer } {
  const element = document.createElement('div');
  document.body.append(element);
  explorer = mount(element, payload, hostOf(null));
  return { element, explorer };
}

test('an explorer says that it reads, and then shows what it has read', async () => {
  const { element, explorer } = show(packedOf('small'));
  expect(element.querySelector('[role=status]')?.textContent).toBe('Reading the record…');
  expect(explorer.state).toBeNull();
  await explorer.ready;
  expect(explorer.state?.data.record.id).toBe(packedOf('small')['id']);
  expect(element.textContent).not.toContain('Reading the record');
  expect(element.querySelector('.nbc-graph')).not.toBeNull();
});

test.each([
  ['damaged', { ...packedOf('small'), deflate: 'AAAA' }, 'it cannot be unpacked'],
  ['of a later version', packed({ schema: 'nbcompile.compilation/9', id: 'x' }), 'Upgrade nbcompile.'],
])('a record that is %s is told in its place', async (_, payload, said) => {
  const { element, explorer } = show(payload);
  await explorer.ready;
  expect(element.querySelector('[role=alert]')?.textContent).toContain('This record cannot be shown.');
  expect(element.querySelector('[role=alert]')?.textContent).toContain(said);
  expect(explorer.state).toBeNull();
  expect(element.textContent).not.toContain('Reading the record');
});

test('what is shown stays until the next is read, and of two the later one is shown', async () => {
  const { element, explorer } = show(packedOf('small'));
  await explorer.ready;
  // The larger one is given first, and so is read last.
  const [large, little] = [packedOf('triton'), { ...payloadOf('inductor'), id: 'little' }];
  explorer.update(large);
  const first = explorer.ready;
  explorer.update(little);
  expect(element.dataset['record']).toBe(packedOf('small')['id']);
  await Promise.all([first, explorer.ready]);
  expect(explorer.state?.data.record.id).toBe('little');
  expect(element.dataset['record']).toBe('little');
});

test('an explorer that is gone before its record is read shows nothing', async () => {
  const { element, explorer } = show(packedOf('small'));
  explorer.dispose();
  await explorer.ready;
  expect(element.textContent).toBe('');
  expect(mounted.value).toEqual([]);
});
