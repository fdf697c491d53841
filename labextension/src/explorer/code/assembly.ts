/** What the C compiler makes of a kernel. No record has it: a live kernel makes it when it is asked for. */
import type { Kernel } from '../../record/generated/record';
import type { Text } from '../../record/generated/scene';
import { ask } from '../play';
import type { State } from '../state';
import type { Listing } from './listing';

export const ASSEMBLY = 'assembly';

export interface Assembly {
  listing: Listing;
  compiler: string;
}

/** A live kernel's answer; `lines`: pairs of a line of `text` and the line of the C that it was made for, from 1. */
interface Answer {
  text: string;
  lines: [number, number][];
  compiler: string;
}

/** What is known of a kernel's assembly in this explorer. */
export function assemblyOf(state: State, kernel: Kernel): Assembly | undefined {
  return state.play.assembly.value.get(key(state, kernel));
}

/** Asks for a kernel's assembly, if it is not known. */
export async function askForAssembly(state: State, kernel: Kernel): Promise<void> {
  if (assemblyOf(state, kernel) || state.play.step.value) return;
  const answer = await ask<Answer>(state, 'assembly', { kernel: kernel.id }, 'code');
  if (!answer) return;
  const of = new Map(answer.lines);
  const made = answer.text.split('\n').map((_, place) => of.get(place + 1) ?? 0);
  const found = { listing: { text: answer.text, made }, compiler: answer.compiler };
  state.play.assembly.value = new Map(state.play.assembly.value).set(key(state, kernel), found);
}

function key(state: State, kernel: Kernel): string {
  return `${state.data.record.id} ${kernel.id}`;
}

/** The tab. */
export function assemblyText(known: Assembly | undefined): Text {
  const about = known ? `what the processor runs, made by ${known.compiler}` : 'what the processor runs';
  return { language: ASSEMBLY, title: 'Assembly', about, left_out: '', skipped: [], made: [], cuts: [] };
}
