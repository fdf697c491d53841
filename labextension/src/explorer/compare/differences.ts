/** Facts of a compilation that are told side by side, and settings in which two differ. */
import type { Unpacked } from '../../record/read';
import { ownTime, spreadText } from '../spread';
import { bytes, count, seconds } from '../units';

export interface FactRow {
  name: string;
  of(data: Unpacked): string;
}

/** The head of a record, a row a fact; a dash where it does not say. */
export const FACTS: readonly FactRow[] = [
  { name: 'compiled by', of: ({ record }) => (record.mode === 'default' ? record.backend : `${record.backend} ${record.mode}`) },
  { name: 'verdict', of: ({ scene }) => scene?.verdict.text ?? '–' },
  { name: 'one call', of: (data) => spreadOr(data) },
  { name: 'eager', of: (data) => seconds(row(data, (each) => each.contestant === 'eager')?.median) },
  { name: 'kernels', of: ({ record }) => (record.kernels.length ? count(record.kernels.length, 'kernel') : '–') },
  { name: 'library calls', of: ({ scene }) => (scene?.calls.length ? String(scene.calls.filter((call) => call.fate !== 'fused').length) : '–') },
  { name: 'bytes moved', of: (data) => (moved(data) ? bytes(moved(data)) : '–') },
  { name: 'graphs, breaks', of: ({ record }) => `${new Set(record.graphs.map((graph) => graph.id.split('.')[0])).size}, ${record.breaks.length}` },
  { name: 'compile', of: ({ record }) => `${seconds(record.compile_seconds)}${record.from_cache ? ', from the cache' : ''}` },
];

function row({ scene }: Unpacked, wanted: (row: { contestant: string; own: boolean }) => boolean) {
  return scene?.timings.flatMap((timing) => timing.rows).find((each) => each.counts && wanted(each));
}

function spreadOr(data: Unpacked): string {
  const spread = ownTime(data);
  return spread ? spreadText(spread) : '–';
}

function moved({ scene }: Unpacked): number {
  return (scene?.calls ?? []).reduce((sum, call) => sum + call.bytes, 0);
}

export interface Setting {
  name: string;
  before: string;
  after: string;
}

/** Options, environment and notes that are not the same in both. */
export function settings(before: Unpacked, after: Unpacked): Setting[] {
  const [a, b] = [flat(before), flat(after)];
  const names = [...new Set([...a.keys(), ...b.keys()])];
  return names
    .map((name) => ({ name, before: a.get(name) ?? '–', after: b.get(name) ?? '–' }))
    .filter((each) => each.before !== each.after);
}

function flat({ record }: Unpacked): Map<string, string> {
  const out = new Map<string, string>([['backend', record.backend], ['mode', record.mode]]);
  for (const [name, value] of Object.entries(record.options)) if (name !== 'mode') out.set(name, text(value));
  for (const [name, value] of Object.entries(record.environment)) out.set(name, text(value));
  out.set('ran', record.execution);
  for (const note of record.notes) out.set(`note: ${note}`, 'yes');
  return out;
}

function text(value: unknown): string {
  if (Array.isArray(value)) return value.length ? value.map(text).join(' ') : 'none';
  if (value !== null && typeof value === 'object') return JSON.stringify(value);
  return value === '' || value === null || value === undefined ? '–' : String(value);
}
