/** Edits of kernels under way: one a kernel, which lives until it is kept or discarded. */
import type { Signal } from '@preact/signals';
import type { Kernel } from '../../record/generated/record';
import { ask, replaceBy } from '../play';
import type { State } from '../state';
import type { Editing } from './CodeText';
import type { EditResult } from './EditBar';
import type { Problem } from './editor';

/** `base` is the text that is compiled, `first` the one that the compiler printed. */
export interface Draft {
  base: string;
  first: string;
  text: string;
  resets: number;
  /** What came of running exactly this text. */
  result: EditResult | null;
  problem: Problem | null;
}

export type Drafts = Signal<ReadonlyMap<string, Draft>>;

/** The edit of one kernel's `language` text. */
export interface Edit {
  state: State;
  kernel: Kernel;
  drafts: Drafts;
  language: string;
}

/** Whether the text that is compiled was edited here. */
export function isEdited(state: State, kernel: Kernel): boolean {
  return state.play.past.value.some((past) => past.edited === kernel.id);
}

export function start(edit: Edit, base: string): void {
  const { state, kernel, drafts, language } = edit;
  const before = state.play.past.value.find((past) => past.edited === kernel.id)?.data.record.kernels;
  const first = before?.find((each) => each.id === kernel.id)?.sources[language] ?? base;
  drafts.value = new Map(drafts.value).set(kernel.id, { base, first, text: base, resets: 0, result: null, problem: null });
}

/** Changes a draft; `null` throws it away. */
export function change({ drafts, kernel }: Edit, by: Partial<Draft> | null): void {
  const next = new Map(drafts.value);
  const draft = next.get(kernel.id);
  if (by === null) next.delete(kernel.id);
  else if (draft) next.set(kernel.id, { ...draft, ...by });
  drafts.value = next;
}

/** Puts the text back to the one that the compiler printed. */
export function reset(edit: Edit, draft: Draft): void {
  change(edit, { text: draft.first, resets: draft.resets + 1, problem: null, result: null });
}

export function editing(edit: Edit, draft: Draft): Editing {
  return {
    text: draft.text,
    resets: draft.resets,
    problem: draft.problem,
    change: (text) => {
      if (text !== edit.drafts.value.get(edit.kernel.id)?.text) change(edit, { text, result: null });
    },
    run: () => void run(edit),
  };
}

/** Has the kernel build the draft, compare it with eager, and time it beside the original. */
export async function run(edit: Edit): Promise<void> {
  const { state, kernel, language } = edit;
  const source = edit.drafts.value.get(kernel.id)?.text;
  if (source === undefined || state.play.step.value) return;
  change(edit, { result: null, problem: null });
  const result = await ask<EditResult>(state, 'edit', { kernel: kernel.id, language, source }, 'edit');
  const failed = state.play.failed.value;
  if (result) {
    // What was typed meanwhile has not run.
    if (edit.drafts.value.get(kernel.id)?.text === source) change(edit, { result });
  } else if (failed && !failed.cancelled) change(edit, { problem: { line: failed.line, text: failed.message } });
}

/** Shows the record with the edited kernel in place of this one. */
export async function keep(edit: Edit): Promise<void> {
  const { state, kernel } = edit;
  const result = edit.drafts.value.get(kernel.id)?.result;
  if (!result?.agrees || result.payload === undefined) return;
  const name = state.calls.get(kernel.id)?.label ?? kernel.name;
  if (await replaceBy(state, result.payload, `${name} edited`, kernel.id)) change(edit, null);
}
