/** Where other compilations come from: what was tried here, other explorers of the page, files, pins. */
import { signal, type Signal } from '@preact/signals';
import { MAX_UNPACKED, read, RecordError, type Unpacked } from '../../record/read';
import type { Play } from '../play';
import type { State } from '../state';

export interface Candidate {
  data: Unpacked;
  label: string;
  from: 'beside it' | 'tried here' | 'in this page' | 'file' | 'pinned';
}

/** States of all explorers that are mounted in this page; mount.tsx keeps it. */
export const mounted = signal<readonly State[]>([]);
/** Records read from files or handed over by a host, for every explorer of the page. */
const held = signal<readonly Candidate[]>([]);
const chosen = new WeakMap<Play, Signal<readonly string[] | null>>();

/** Ids of the records that an explorer is compared with; `null`: none was chosen yet. */
export function chosenOf(state: State): Signal<readonly string[] | null> {
  const known = chosen.get(state.play);
  if (known) return known;
  const made = signal<readonly string[] | null>(null);
  chosen.set(state.play, made);
  return made;
}

/** Everything that this explorer's record can be compared with, each record once. */
export function candidates(state: State): Candidate[] {
  const all: Candidate[] = [
    ...state.data.peers.map((data) => ({ data, label: compilerOf(data), from: 'beside it' as const })),
    ...state.play.tried.value.flatMap((each) => (each.data ? [{ data: each.data, label: each.change, from: 'tried here' as const }] : [])),
    ...held.value,
    ...mounted.value.map((each) => ({ data: each.data, label: titleOf(each.data), from: 'in this page' as const })),
  ];
  const seen = new Set([state.data.record.id]);
  const once = all.filter((each) => !seen.has(each.data.record.id) && seen.add(each.data.record.id));
  const alike = (label: string): boolean => once.filter((each) => each.label === label).length > 1;
  return once.map((each) => (alike(each.label) ? { ...each, label: `${each.label} (${each.data.record.id.slice(0, 5)})` } : each));
}

/** `inductor max-autotune`. */
export function compilerOf({ record }: Pick<Unpacked, 'record'>): string {
  return record.mode === 'default' ? record.backend : `${record.backend} ${record.mode}`;
}

/** `In [7] · nbcompile default`. */
export function titleOf({ record, scene }: Unpacked): string {
  return [scene?.title, compilerOf({ record }), record.options['fuse'] === false ? 'no fusion' : ''].filter(Boolean).join(' · ');
}

/** Adds a record for every explorer of the page to compare with; one of the same id gives way. */
export function hold(candidate: Candidate): void {
  const id = candidate.data.record.id;
  held.value = [...held.value.filter((each) => each.data.record.id !== id), candidate];
}

/** Reads a saved payload, or a saved record alone. Throws RecordError or SyntaxError with what is wrong with it. */
export async function readFile(file: File): Promise<Candidate> {
  if (file.size > MAX_UNPACKED) throw new RecordError('This file is too large to be a record.', 'Choose another file.');
  const data = await read(JSON.parse(await file.text()));
  const candidate: Candidate = { data, label: file.name.replace(/\.json$/, ''), from: 'file' };
  hold(candidate);
  return candidate;
}

/**
 * Shows in `state`'s explorer how its record differs from `others`, which are taken as what was before it.
 * For hosts that pin compilations: each of `others` is the state of an explorer or a payload. Rejects with a
 * RecordError for a payload that cannot be read.
 */
export async function compare(state: State, others: readonly unknown[]): Promise<void> {
  const found = await Promise.all(others.map((each) => (isState(each) ? each.data : read(each))));
  for (const data of found) hold({ data, label: titleOf(data), from: 'pinned' });
  chosenOf(state).value = found.map((data) => data.record.id);
  state.panel.value = 'compare';
}

function isState(value: unknown): value is State {
  return value !== null && typeof value === 'object' && 'data' in value && 'links' in value;
}
