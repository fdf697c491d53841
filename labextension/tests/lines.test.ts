// @vitest-environment happy-dom
import { expect, it } from 'vitest';
import { card } from '../src/lab/card';
import { marksOf } from '../src/lab/lines';
import { fixture } from './hosts';

it('says what became of each line, and reads each payload once', async () => {
  const payload = fixture('small');
  const marks = await marksOf(payload);
  expect(marks).not.toBeNull();
  expect(await marksOf(payload)).toBe(marks);
  expect(marks?.record).toBe(payload.id);
  const fused = marks?.lines.find((each) => each.fate === 'fused');
  expect(fused?.summary).toMatch(/^line \d+: in generated kernels/);
  expect(fused?.calls.length).toBeGreaterThan(0);
});

it('has no marks for what is no record, nor for a record without a cell', async () => {
  for (const payload of [null, 'text', {}, { ...fixture('small'), cell: null }]) expect(await marksOf(payload)).toBeNull();
});

it('shows hostile text as text', () => {
  const hostile = '<img src=x onerror=alert(1)>';
  const element = card({
    line: 2, fate: 'break', summary: hostile,
    calls: Array.from({ length: 9 }, () => ({ label: hostile, fate: 'fused', text: hostile })),
    reasons: [{ text: hostile, hint: hostile }],
  });
  expect(element.querySelector('img')).toBeNull();
  expect(element.textContent).toContain(hostile);
  expect(element.textContent).toContain('and 3 more');
});
