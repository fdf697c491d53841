/** Records from strangers: what reading makes of them before anything looks. tests/hostile has the records. */
import { deflateSync } from 'node:zlib';
import { describe, expect, test } from 'vitest';
import { Playback } from '../src/explorer/capture/playback';
import { ending, languageOf } from '../src/explorer/code/languages';
import { lineMap } from '../src/explorer/compare/lines';
import { fileName } from '../src/explorer/save';
import { shape } from '../src/explorer/units';
import type { DynamoWalk } from '../src/record/generated/record';
import { Links } from '../src/record/links';
import { read, RecordError } from '../src/record/read';
import { harmless, marked } from '../src/record/texts';

const SCHEMA = 'nbcompile.compilation/1';
const KEYS = ['__proto__', 'constructor', 'toString', 'hasOwnProperty', 'valueOf'];

function packed(json: string): Record<string, unknown> {
  return { schema: SCHEMA, id: 'x', deflate: deflateSync(json).toString('base64') };
}

function inside(fields: string): Record<string, unknown> {
  return packed(`{"schema":"${SCHEMA}","id":"x",${fields}}`);
}

async function refusal(payload: unknown): Promise<string> {
  const error: unknown = await read(payload).then(() => 'it was read', (why: unknown) => why);
  expect(error).toBeInstanceOf(RecordError);
  return (error as RecordError).message;
}

describe('texts', () => {
  test('texts that turn round are marked', async () => {
    expect(marked('a\u202eb\u2066')).toBe('a‹U+202E›b‹U+2066›');
    const source = '%%compile\nx = 1 # \u202e';
    const { record, source: exact } = await read(inside(`"cell":${JSON.stringify({ source })},"notes":["\\u202e"],"options":{"\\u2067":"\\u061c"}`));
    expect(record.cell?.source).toBe('%%compile\nx = 1 # ‹U+202E›');
    expect(exact).toBe(source);
    expect(record.notes).toEqual(['‹U+202E›']);
    expect(Object.entries(record.options)).toEqual([['‹U+2067›', '‹U+061C›']]);
  });

  test('a rewrite goes to the letter into a cell that has such texts itself, and marked into others', async () => {
    const mend = { title: 't', diff: 'd', after: 'y \u200f' };
    const after = async (source: string): Promise<unknown> =>
      (await read(inside(`"cell":${JSON.stringify({ source })},"breaks":[{"reason":"r","mend":${JSON.stringify(mend)}}]`))).record.breaks[0]?.mend?.after;
    expect(await after('x \u200f')).toBe('y \u200f');
    expect(await after('x')).toBe('y ‹U+200F›');
  });

  test('a file that is offered has no path', () => {
    for (const name of ['../../x', '..\\\\..\\\\x', '/etc/passwd', '.bashrc', 'a\u202egnp.exe', 'C:x', 'a\0b', '', '...']) {
      expect(fileName(name)).toMatch(/^[\w-]+$/);
    }
    expect(fileName('k0_softmax')).toBe('k0_softmax');
  });
});

describe('keys', () => {
  test('no key is there that the record has not', async () => {
    const { record } = await read(inside('"options":{},"kernels":[{"id":"k","name":"k","graph":"g","loops":[],"schedule":"s","sources":{}}]'));
    for (const key of KEYS) {
      expect(record.options[key]).toBeUndefined();
      expect(key in (record.kernels[0]?.sources ?? { [key]: 1 })).toBe(false);
    }
  });

  test('one that the record has is a key like others', async () => {
    const { record } = await read(inside('"__proto__":{"polluted":1},"options":{"__proto__":{"polluted":1},"constructor":2}'));
    expect(Object.keys(record.options)).toEqual(['__proto__', 'constructor']);
    expect(({} as Record<string, unknown>)['polluted']).toBeUndefined();
  });

  test('what is looked up by a word of the record is a text', () => {
    for (const key of KEYS) {
      expect(ending(key)).toMatch(/^\.\w+$/);
      expect(() => languageOf(key)).not.toThrow();
      expect(shape([1], key)).toBe(`${key}[1]`);
    }
  });
});

describe('bounds', () => {
  test('on values', async () => {
    expect(await refusal(inside(`"notes":[${'0,'.repeat(4_100_000)}0]`))).toMatch(/more than 4 million values/);
  });

  test('on depth', async () => {
    expect(await refusal(inside(`"options":{"a":${'['.repeat(5_000)}${']'.repeat(5_000)}}`))).toMatch(/deep in each other/);
    expect(() => harmless(JSON.parse('['.repeat(60) + ']'.repeat(60)))).not.toThrow();
  });

  test('on what a refusal quotes', async () => {
    expect((await refusal({ schema: `nbcompile.compilation/${'9'.repeat(10_000)}` })).length).toBeLessThan(200);
  });

  test('on walks through links', async () => {
    const nodes = Array.from({ length: 3_000 }, (_, n) => ({ id: `n${n}`, name: 'n', op: 'o', kind: 'compute', origins: [`n${n + 1}`] }));
    const { record } = await read(inside(`"graphs":[${JSON.stringify({ id: 'g', stage: 'fx', title: 't', nodes })}]`));
    expect(new Links(record).up(['n0']).size).toBeLessThan(100);
  });

  test('on what each step of a walk keeps', () => {
    const steps = Array.from({ length: 5_000 }, (_, n) => ({ at: 0, depth: n, kept: 2 ** 53, pushed: Array<number>(400).fill(0), stored: [n, n], made: [], dropped: [], said: '', broke: false }));
    const words = Array.from({ length: 5_000 }, (_, n) => `w${n}`);
    const playback = new Playback({ frame: 'f', attempt: 0, ended: 'returned', codes: [], instructions: [], words, steps, graph: '', reason: '', rewritten: null, cut: '' } as unknown as DynamoWalk);
    const moment = playback.at(4_999);
    expect(moment?.stack.length).toBeLessThanOrEqual(300);
    expect(moment?.locals.size).toBeLessThanOrEqual(300);
    expect(moment?.callers.length).toBeLessThanOrEqual(300);
  });

  test('on lines held against each other', () => {
    const [before, after] = ['a', 'b'].map((word) => Array.from({ length: 6_000 }, (_, n) => `${word} ${word}${n} x${n % 7}`).join('\n')) as [string, string];
    const begun = performance.now();
    lineMap(before, after);
    expect(performance.now() - begun).toBeLessThan(20_000);
  });
});
