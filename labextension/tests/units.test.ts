/** Numbers read the same in Python's views and in the explorer: tests/test_units.py reads the same file. */
import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { bytes, percent, seconds, times } from '../src/explorer/units';

const TABLE = JSON.parse(readFileSync('tests/units.json', 'utf8')) as Record<string, [number, string][]>;
const WORDS: Record<string, (value: number) => string> = { seconds, speed: times, percent, bytes };

test.each(Object.keys(WORDS))('%s', (kind) => {
  const rows = TABLE[kind] ?? [];
  expect(rows.length).toBeGreaterThan(5);
  expect(rows.map(([value]) => WORDS[kind]?.(value))).toEqual(rows.map(([, text]) => text));
});
