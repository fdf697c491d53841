/** Playing with a live kernel: one way to run a change, and to go back to what was shown before it. */
import { signal } from '@preact/signals';
import { read, RecordError, type Unpacked } from '../record/read';
import type { Assembly } from './code/assembly';
import { PlayError, type Progress } from './host';
import type { State } from './state';

/** What can be changed about a compilation. What is not named stays as it is in the record that is shown. */
export interface Settings {
  backend?: string;
  /** The chip that nbcompile makes code for. */
  target?: string;
  mode?: string;
  dynamic?: boolean | null;
  dtype?: string;
  /** New extents by the old ones' names. */
  sizes?: Record<string, number>;
  fuse?: boolean;
  /** Pairs of loop names, producer first. */
  no_fuse?: [string, string][];
  force_fuse?: [string, string][];
  bench?: boolean;
}

/** A record that was shown before a change, and what was changed about it, in a few words. */
export interface Past {
  data: Unpacked;
  change: string;
  /** The kernel whose text was edited, if that is what was changed. */
  edited?: string | undefined;
}

/** Where a request was made, and so where its progress and its failure are shown. */
export type Place = 'bar' | 'edit' | 'code';

/** A record that was shown, and how it came about; or a change that came to nothing, and why. */
export type Tried = { change: string } & (
  | { data: Unpacked; failed: null }
  | { data: null; failed: PlayError }
);

/** What one explorer plays: lives on while its records change. */
export class Play {
  /** What the kernel is doing for this explorer; `null`: nothing. */
  readonly step = signal<Progress | null>(null);
  readonly failed = signal<PlayError | null>(null);
  readonly place = signal<Place>('bar');
  /** The records that changes were made from, the last one last. */
  readonly past = signal<readonly Past[]>([]);

  /** Everything that was tried here, the first record first; a record stands in it once. */
  readonly tried = signal<readonly Tried[]>([]);
  /** What was asked for of kernels' machine code, by record and kernel. */
  readonly assembly = signal<ReadonlyMap<string, Assembly>>(new Map());
  /** The same program as other compilers, or for other chips, have it: by record and name of the way. */
  readonly elsewhere = signal<ReadonlyMap<string, Unpacked>>(new Map());
  /** Whether a control that is let go of runs at once. */
  readonly auto = signal(true);

  /** `show` puts a record in the place of the one that is shown. */
  constructor(readonly show: (data: Unpacked) => void) {}

  remember(one: Tried): void {
    const known = one.data && this.tried.value.some((each) => each.data?.record.id === one.data?.record.id);
    if (!known) this.tried.value = [...this.tried.value, one];
  }
}

/** Asks the kernel for something, with progress and failure in `state.play`; `null` if it failed. */
export async function ask<T>(state: State, method: string, params: object, place: Place = 'bar'): Promise<T | null> {
  const { play } = state;
  const kernel = state.host.kernel.value;
  if (play.step.value) return null;
  play.failed.value = null;
  play.place.value = place;
  try {
    if (!kernel) throw new PlayError('No kernel', state.host.needs);
    play.step.value = { text: 'waiting for the kernel' };
    const asked = { record: state.data.record.id, ...params };
    return await kernel.request<T>(method, asked, (step) => (play.step.value = step));
  } catch (error) {
    play.failed.value = error instanceof PlayError ? error : new PlayError('It failed', String(error));
    return null;
  } finally {
    play.step.value = null;
  }
}

/**
 * Compiles what is shown with other settings and shows the result in its place. `change` says what was
 * changed. False if that failed: `state.play.failed` says why.
 */
export async function runChange(state: State, settings: Settings, change: string): Promise<boolean> {
  const answer = await ask<{ payload: unknown }>(state, 'change', settings);
  if (answer === null) {
    const failed = state.play.failed.value;
    if (failed && !failed.cancelled) state.play.remember({ change, data: null, failed });
    return false;
  }
  return replaceBy(state, answer.payload, change);
}

/** Shows what a kernel sent in place of what is shown. False if it cannot be read: `state.play.failed` says why. */
export async function replaceBy(state: State, payload: unknown, change: string, edited?: string): Promise<boolean> {
  try {
    replace(state, await read(payload), change, edited);
    return true;
  } catch (error) {
    if (!(error instanceof RecordError)) throw error;
    state.play.failed.value = new PlayError('It cannot be shown', error.message, error.advice);
    return false;
  }
}

/** Shows a record in place of what is shown, which {@link undo} brings back. */
export function replace(state: State, data: Unpacked, change: string, edited?: string): void {
  const { play } = state;
  play.past.value = [...play.past.value, { data: state.data, change, edited }];
  play.remember({ change: 'as compiled', data: state.data, failed: null });
  play.show(data);
  play.remember({ change, data, failed: null });
}

/** Shows what was shown before the last change. */
export function undo(state: State): void {
  const past = state.play.past.value;
  const last = past[past.length - 1];
  if (!last || state.play.step.value) return;
  state.play.failed.value = null;
  state.play.past.value = past.slice(0, -1);
  state.play.show(last.data);
}
