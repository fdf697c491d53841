import { deflateSync } from 'node:zlib';
import { describe, expect, test, vi } from 'vitest';
import { Links } from '../src/record/links';
import { inflate, read, RecordError } from '../src/record/read';
import type { Drawing } from '../src/record/generated/scene';
import { packed, packedOf, payloadOf, record } from './records';

/** What Python reads from the same payload: made by scripts/explorer_fixtures.py. */
const python = packedOf('small.python') as {
  record: object;
  at_line: Record<string, string[]>;
  lines: Record<string, number[]>;
  up: Record<string, string[]>;
  down: Record<string, number>;
};

type Values = Record<string, unknown> & { graphs: { nodes: Record<string, unknown>[] }[] };

function changed(change: (values: Values) => void): Record<string, unknown> {
  const values = payloadOf('small') as Values;
  change(values);
  return values;
}

async function problem(payload: unknown): Promise<string> {
  const error: unknown = await read(payload).then(() => 'it was read', (why: unknown) => why);
  expect(error).toBeInstanceOf(RecordError);
  expect((error as RecordError).advice).not.toBe('');
  return (error as RecordError).message;
}

describe('a record', () => {
  test('is read as Python reads it, packed or not', async () => {
    expect(JSON.parse(JSON.stringify(record('small').record))).toEqual(python.record);
    expect(await read(payloadOf('small'))).toEqual(await read(packedOf('small')));
  });

  test('has its view, and opens without one', async () => {
    expect(record('small').scene?.calls.length).toBeGreaterThan(0);
    expect((await read(changed((values) => delete values['view']))).scene).toBeNull();
  });

  test('whose view is damaged opens without it, and says why', async () => {
    const { scene, lacking } = await read(packed(changed((values) => Object.assign(values['view'] as object, { lines: 3 }))));
    expect(scene).toBeNull();
    expect(lacking).toContain('lines must be array');
  });

  test('is not changed by being read', async () => {
    const payload = payloadOf('small');
    await read(payload);
    expect(payload).toEqual(payloadOf('small'));
  });

  test('of little has everything at what it stands for', async () => {
    const { record } = await read({ schema: 'nbcompile.compilation/1', id: 'x' });
    expect([record.graphs, record.cell, record.environment.threads, record.execution]).toEqual([[], null, 0, 'compiled']);
  });

  test('prints of a graph the lines of its nodes, where it does not say', async () => {
    const node = { id: 'n', name: 'n', op: 'add', kind: 'compute' };
    const nodes = ['a = add(x)', '', 'b = mul(a)'].map((text, n) => ({ ...node, id: `n${n}`, text }));
    const graph = { id: 'g', stage: 'fx', title: 'g', nodes };
    const { record } = await read({ schema: 'nbcompile.compilation/1', id: 'x', graphs: [graph, { ...graph, text: 'its own' }] });
    expect(record.graphs.map(({ text }) => text)).toEqual(['a = add(x)\nb = mul(a)', 'its own']);
  });

  test('counts what is drawn from the first node of each group, and is read as places in the graph', async () => {
    const payload = payloadOf('small') as { view: { drawings: Drawing[] } };
    const drawn = (await read(payload)).scene?.drawings ?? [];
    expect(payload.view.drawings.some(({ groups }) => groups.some(({ first }) => first))).toBe(true);
    payload.view.drawings.forEach(({ groups }, at) => groups.forEach(({ first = 0, rows, edges = [] }, group) => {
      const read = drawn[at]?.groups[group];
      expect(read?.rows.flat()).toEqual(rows.flatMap((row) => row.map((ref, n) => (n % 3 === 0 && ref >= 0 ? ref + first : ref))));
      expect(read?.edges.map(([value]) => value)).toEqual(edges.map(([value = 0]) => value + first));
    }));
  });

  const whole = packedOf('small')['deflate'] as string;
  test.each([
    ['nothing', null, 'not an nbcompile record'],
    ['a list', [], 'not an nbcompile record'],
    ['a text', 'nbcompile.compilation/1', 'not an nbcompile record'],
    ['another schema', { schema: 'nbformat/4' }, 'no nbcompile schema line'],
    ['no version', { schema: 'nbcompile.compilation/', id: 'x' }, 'no nbcompile schema line'],
    ['a later version', { schema: 'nbcompile.compilation/2', id: 'x' }, 'says nbcompile.compilation/2'],
    ['no id', { schema: 'nbcompile.compilation/1' }, 'damaged'],
    ['a wrong kind', { schema: 'nbcompile.compilation/1', id: 'x', graphs: [1] }, 'graphs.0'],
    ['a node of wrong parts', packed(changed((values) => Object.assign(values.graphs[0]?.nodes[1] ?? {}, { spans: 7 }))), 'graphs.0.nodes.1.spans'],
    ['packed by nobody', { schema: 'nbcompile.compilation/1', id: 'x', deflate: 7 }, 'cannot be unpacked'],
    ['no base64', { ...packedOf('small'), deflate: `*${whole}` }, 'cannot be unpacked'],
    ['cut off', { ...packedOf('small'), deflate: whole.slice(0, 4000) }, 'cannot be unpacked'],
    ['nothing within', { ...packedOf('small'), deflate: deflateSync('{}').toString('base64') }, 'no nbcompile schema line'],
    ['another within', packed({ schema: 'nbcompile.compilation/2', id: 'x' }), 'says nbcompile.compilation/2'],
    ['no JSON within', { ...packedOf('small'), deflate: deflateSync('{"schema":').toString('base64') }, 'not JSON'],
  ])('that is %s is refused in words', async (_, payload, said) => {
    expect(await problem(payload)).toContain(said);
  });
});

describe('a packed text', () => {
  test('is inflated', async () => {
    const text = 'for (;;) { x = "µ→"; }\n'.repeat(10_000);
    expect(await inflate(deflateSync(text).toString('base64'))).toBe(text);
  });

  test('that is endless is refused before it is written out', async () => {
    const bomb = deflateSync(Buffer.alloc(20_000_000)).toString('base64');
    expect(bomb.length).toBeLessThan(40_000);
    const asked = vi.spyOn(ReadableStreamDefaultReader.prototype, 'read');
    await expect(inflate(bomb, 2_000_000).then((text) => text.length)).rejects.toThrow('it unpacks to more than 2 MB');
    // Node's pieces are of 16 kB at least: of 20 MB it would ask 1,200 times.
    expect(asked.mock.calls.length).toBeLessThan(200);
    asked.mockRestore();
  });

  test('needs a browser that can', async () => {
    vi.stubGlobal('DecompressionStream', undefined);
    await expect(read(packedOf('small'))).rejects.toThrow('This browser cannot unpack records.');
    vi.unstubAllGlobals();
  });
});

describe('links', () => {
  const links = new Links(record('small').record);
  const sorted = (ids: Iterable<string>): string[] => [...ids].sort();

  test('find what Python finds at every line', () => {
    expect(Object.keys(python.at_line).length).toBeGreaterThan(4);
    for (const [line, ids] of Object.entries(python.at_line)) expect(sorted(links.atLine(Number(line)))).toEqual(ids);
  });

  test('lead from everything to the lines and the things that it was made from', () => {
    for (const [id, lines] of Object.entries(python.lines)) {
      expect([...links.lines([id])].sort((a, b) => a - b)).toEqual(lines);
      expect(sorted(links.up([id]))).toEqual([id, ...(python.up[id] ?? [])].sort());
      expect(links.down([id]).size - 1).toBe(python.down[id]);
    }
  });

  test('end where origins go in a circle', () => {
    const { record: circular } = record('small');
    const [first, second] = circular.graphs[0]?.nodes ?? [];
    if (!first || !second) throw new Error('two nodes are needed');
    [first.origins, second.origins] = [[second.id], [first.id]];
    expect(new Links(circular).up([first.id])).toContain(second.id);
  });

  test('follow a span of billions of lines for a while only', () => {
    const { record: long } = record('small');
    const node = long.graphs[0]?.nodes.find((each) => each.spans.some((span) => span.file === ''));
    if (!node) throw new Error('a node of the cell is needed');
    for (const span of node.spans) if (span.file === '') Object.assign(span, { line: 1, end_line: 2 ** 31 });
    expect(new Links(long).lines([node.id]).size).toBeLessThan(2_100);
  });
});
