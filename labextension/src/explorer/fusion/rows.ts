/** Fusion decisions as rows: which to show, in which order, and whether one can be overruled. */
import type { Compilation, Decision } from '../../record/generated/record';
import type { Settings } from '../play';
import type { State } from '../state';

export const SHOWN = { all: 'All', fused: 'Fused', refused: 'Refused', overruled: 'Overruled' } as const;
export const SORTED = { order: 'as decided', bytes: 'most bytes first', line: 'by cell line', reason: 'by reason' } as const;

export interface Choice {
  shown: keyof typeof SHOWN;
  sorted: keyof typeof SORTED;
  search: string;
}

export interface Row {
  decision: Decision;
  /** From 0: when it was decided. */
  step: number;
  producer: string;
  consumer: string;
  lines: number[];
}

export function rowsOf(state: State): Row[] {
  const name = (id: string): string => state.links.nodes.get(id)?.name ?? id;
  return state.data.record.decisions.map((decision, step) => ({
    decision,
    step,
    producer: name(decision.producer),
    consumer: name(decision.consumer),
    lines: [...state.links.lines([decision.producer, decision.consumer])].sort((a, b) => a - b),
  }));
}

export function isShown({ accepted, overruled }: Decision, shown: Choice['shown']): boolean {
  if (shown === 'overruled') return overruled;
  return shown === 'all' || accepted === (shown === 'fused');
}

export function chosenRows(rows: readonly Row[], { shown, sorted, search }: Choice): Row[] {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = rows.filter((row) => {
    const text = `${row.producer} ${row.consumer} ${row.decision.reason} ${row.decision.code}`.toLowerCase();
    return isShown(row.decision, shown) && words.every((word) => text.includes(word));
  });
  const by: Record<Choice['sorted'], (a: Row, b: Row) => number> = {
    order: (a, b) => a.step - b.step,
    bytes: (a, b) => b.decision.bytes_saved - a.decision.bytes_saved || a.step - b.step,
    line: (a, b) => (a.lines[0] ?? Infinity) - (b.lines[0] ?? Infinity) || a.step - b.step,
    reason: (a, b) => a.decision.code.localeCompare(b.decision.code) || a.step - b.step,
  };
  return found.sort(by[sorted]);
}

/** The change that overrules a decision, or why there is none. */
export function overruling(record: Compilation, row: Row): { settings: Settings } | { why: string } {
  const { decision } = row;
  const pair: [string, string] = [row.producer, row.consumer];
  const [apart, forced] = [pairsOf(record, 'no_fuse'), pairsOf(record, 'force_fuse')];
  const same = ([a, b]: readonly string[]): boolean => a === pair[0] && b === pair[1];
  const without = (pairs: [string, string][]): [string, string][] => pairs.filter((each) => !same(each));
  if (record.backend !== 'nbcompile') return { why: `${record.backend} does not let its decisions be changed.` };
  if (decision.accepted) return { settings: { no_fuse: [...without(apart), pair], force_fuse: without(forced) } };
  if (apart.some(same)) return { settings: { no_fuse: without(apart), force_fuse: forced } };
  if (decision.forceable || decision.code === 'fusion-off') {
    return { settings: { no_fuse: without(apart), force_fuse: [...without(forced), pair] } };
  }
  return { why: `This pair cannot be one kernel: ${decision.reason}.` };
}

/** Pairs of loop names in an option; an option of a stranger's record may hold anything. */
function pairsOf(record: Compilation, option: 'no_fuse' | 'force_fuse'): [string, string][] {
  const value = record.options[option];
  if (!Array.isArray(value)) return [];
  return value.filter((pair): pair is [string, string] => Array.isArray(pair) && pair.length === 2 && pair.every((each) => typeof each === 'string'));
}
