/**
 * The same program in other words: what other compilers make of it, and what this one makes for other chips. No record
 * has them all: a live kernel compiles them, without timing them, when they are asked for.
 */
import type { Kernel } from '../../record/generated/record';
import type { Text } from '../../record/generated/scene';
import { read, RecordError, type Unpacked } from '../../record/read';
import { PlayError } from '../host';
import { ask, type Settings } from '../play';
import type { State } from '../state';
import { textsOf } from './listing';

/** A text that a record of this kernel does not have. */
export interface Elsewhere {
  /** Of the tab. */
  id: string;
  title: string;
  about: string;
  /** How the program is compiled for it: texts of one way are of one compile. */
  way: 'gpu' | 'cpu' | 'inductor';
  /** The kind of text; empty: the one that a kernel was printed as. */
  language: string;
}

const CHIP = 'cuda:90';
const WAYS: Record<Elsewhere['way'], Settings> = {
  gpu: { backend: 'nbcompile', target: CHIP }, cpu: { backend: 'nbcompile', target: 'cpu' }, inductor: { backend: 'inductor' },
};
const ALL: readonly Elsewhere[] = [
  { id: 'elsewhere c', title: 'C', about: 'what nbcompile makes of it for a CPU', way: 'cpu', language: 'c' },
  { id: 'elsewhere triton', title: 'Triton', about: `what nbcompile makes of it for ${CHIP}`, way: 'gpu', language: 'triton' },
  { id: 'elsewhere ptx', title: 'PTX', about: `the same, as Triton compiles it for ${CHIP}`, way: 'gpu', language: 'ptx' },
  { id: 'elsewhere sass', title: 'SASS', about: `the same, as ${CHIP} runs it`, way: 'gpu', language: 'sass' },
  { id: 'elsewhere inductor', title: 'Inductor', about: 'what Inductor makes of it', way: 'inductor', language: '' },
];

/** The texts that this record of nbcompile's lacks, of those that one may want to read. */
export function lacking(state: State, sources: Record<string, string>): Elsewhere[] {
  const { record, peers } = state.data;
  if (record.backend !== 'nbcompile' || state.isPeer) return [];
  const known = peers.some((peer) => peer.record.backend === 'inductor');
  return ALL.filter((each) => (each.way === 'inductor' ? !known : !(each.language in sources)));
}

/** What was compiled for it, once it was. */
export function compiledFor(state: State, wanted: Elsewhere): Unpacked | undefined {
  return state.play.elsewhere.value.get(key(state, wanted));
}

/** Compiles the program for it, if that was not done yet. */
export async function compileFor(state: State, wanted: Elsewhere): Promise<void> {
  const { play } = state;
  if (compiledFor(state, wanted) || play.step.value) return;
  const answer = await ask<{ payload: unknown }>(state, 'change', { ...WAYS[wanted.way], bench: false }, 'code');
  if (!answer) return;
  try {
    play.elsewhere.value = new Map(play.elsewhere.value).set(key(state, wanted), await read(answer.payload));
  } catch (error) {
    if (!(error instanceof RecordError)) throw error;
    play.failed.value = new PlayError('It cannot be shown', error.message, error.advice);
  }
}

function key(state: State, { way }: Elsewhere): string {
  return `${state.data.record.id} ${way}`;
}

/** The kernels of another compile that do what a kernel does, those first that have most in common with it. */
export function counterparts(state: State, kernel: Kernel, other: State): Kernel[] {
  const own = captured(state, kernel.id);
  const found = other.data.record.kernels.map((each) => {
    const theirs = captured(other, each.id);
    const both = [...own].filter((id) => theirs.has(id)).length;
    return { each, alike: both / Math.max(1, own.size + theirs.size - both) };
  });
  return found.filter(({ alike }) => alike > 0).sort((a, b) => b.alike - a.alike).map(({ each }) => each);
}

/** The captured operations that something was made from: every compile of a program captures the same. */
function captured(state: State, id: string): Set<string> {
  return new Set([...state.links.up([id])].filter((each) => state.links.graphs.get(each)?.stage === 'fx' && state.links.nodes.get(each)?.kind !== 'input'));
}

/** The text of that kind that a kernel of another compile has. */
export function textFor(other: State, kernel: Kernel, wanted: Elsewhere): Text | undefined {
  const about = (other.data.scene?.kernels ?? []).find((each) => each.kernel === kernel.id);
  const texts = textsOf(kernel.sources, about);
  return wanted.language ? texts.find((text) => text.language === wanted.language) : texts[0];
}
