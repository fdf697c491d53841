import { deflateSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { Links } from '../src/record/links';
import { inflate, RecordError, unpack } from '../src/record/unpack';
import { payloadOf, record } from './records';

/** What Python reads from the same payload: made by scripts/explorer_fixtures.py. */
const python = payloadOf('small.python') as {
  record: object;
  at_line: Record<string, string[]>;
  lines: Record<string, number[]>;
  up: Record<string, string[]>;
  down: Record<string, number>;
};

type Values = Record<string, unknown> & { graphs: { nodes: Record<string, unknown>[] }[]; spans: object[][] };

function changed(change: (values: Values) => void): unknown {
  const values = structuredClone(payloadOf('small')) as Values;
  change(values);
  return values;
}

function problem(payload: unknown): string {
  try {
    unpack(payload);
  } catch (error) {
    expect(error).toBeInstanceOf(RecordError);
    expect((error as RecordError).advice).not.toBe('');
    return (error as RecordError).message;
  }
  throw new Error('it was read');
}

describe('a record', () => {
  test('is unpacked to what Python unpacks it to', () => {
    expect(JSON.parse(JSON.stringify(record('small').record))).toEqual(python.record);
  });

  test('has its view, and opens without one', () => {
    expect(record('small').scene?.calls.length).toBeGreaterThan(0);
    expect(unpack(changed((values) => delete values['view'])).scene).toBeNull();
  });

  test('whose view is damaged opens without it, and says why', () => {
    const { scene, lacking } = unpack(changed((values) => Object.assign(values['view'] as object, { lines: 3 })));
    expect(scene).toBeNull();
    expect(lacking).toContain('lines must be array');
  });

  test('is not changed by being read', () => {
    const payload = payloadOf('small');
    unpack(payload);
    expect(payload).toEqual(payloadOf('small'));
  });

  test('of little has everything at what it stands for', () => {
    const { record } = unpack({ schema: 'nbcompile.compilation/1', id: 'x' });
    expect([record.graphs, record.cell, record.environment.threads, record.execution]).toEqual([[], null, 0, 'compiled']);
  });

  test.each([
    ['nothing', null, 'not an nbcompile record'],
    ['a list', [], 'not an nbcompile record'],
    ['a text', 'nbcompile.compilation/1', 'not an nbcompile record'],
    ['another schema', { schema: 'nbformat/4' }, 'no nbcompile schema line'],
    ['no version', { schema: 'nbcompile.compilation/', id: 'x' }, 'no nbcompile schema line'],
    ['a later version', { schema: 'nbcompile.compilation/2', id: 'x' }, 'says nbcompile.compilation/2'],
    ['no id', { schema: 'nbcompile.compilation/1' }, 'damaged'],
    ['a wrong kind', { schema: 'nbcompile.compilation/1', id: 'x', graphs: [1] }, 'graphs.0'],
    ['a place beyond a table', changed((values) => Object.assign(values.graphs[0]?.nodes[1] ?? {}, { spans: 1e9 })), 'spans has no number'],
    ['a place before a table', changed((values) => Object.assign(values.graphs[0]?.nodes[1] ?? {}, { inputs: [-1] })), 'nodes.1.inputs.0'],
    ['too many spans', changed(unfolding), 'too many spans'],
  ])('that is %s is refused in words', (_, payload, said) => {
    expect(problem(payload)).toContain(said);
  });
});

/** A small file that would unfold into three million spans. */
function unfolding(values: Values): void {
  values.spans.push(Array.from({ length: 3_000 }, () => ({ line: 1 })));
  const nodes = values.graphs[0]?.nodes ?? [];
  const spans = values.spans.length - 1;
  for (let number = 0; number < 1_000; number++) nodes.push({ ...nodes[0], id: `many${number}`, spans });
}

describe('a packed text', () => {
  test('is inflated', async () => {
    const text = 'for (;;) { x = "µ→"; }\n'.repeat(1_000);
    expect(await inflate({ deflate: deflateSync(text).toString('base64') })).toBe(text);
    expect(await inflate('as it is')).toBe('as it is');
  });

  test('that is endless is refused before it is written out', async () => {
    const bomb = deflateSync(Buffer.alloc(100_000_000)).toString('base64');
    expect(bomb.length).toBeLessThan(200_000);
    await expect(inflate({ deflate: bomb })).rejects.toThrow('too long');
  });

  test.each(['*no base64*', 'AAAA', deflateSync('cut off in the middle of it').subarray(0, 12).toString('base64')])(
    'that is damaged is told: %s',
    async (deflate) => {
      await expect(inflate({ deflate })).rejects.toThrow('damaged');
    },
  );
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
