/** The stages of a record in the order of the pipeline. */
import type { Compilation, Graph } from '../record/generated/record';

export type Stage = Graph['stage'];
export const STAGES: readonly Stage[] = ['fx', 'joint', 'forward', 'backward', 'loops', 'fused'];
const TITLES: Record<Stage, string> = {
  fx: 'FX', joint: 'joint', forward: 'forward', backward: 'backward', loops: 'loops', fused: 'fused',
};

/** All graphs, those nearest to what runs first. */
export function latestFirst(record: Compilation): Graph[] {
  return [...record.graphs].sort((a, b) => STAGES.indexOf(b.stage) - STAGES.indexOf(a.stage));
}

/** Tabs of a row, and characters of a text that is shown whole: a record may have any number. */
const MAX_TABS = 100;
const MAX_TEXT = 500_000;

/** The graphs that have a tab: the first, and the chosen one. */
export function tabbed(graphs: readonly Graph[], chosen: Graph | undefined): Graph[] {
  const first = graphs.slice(0, MAX_TABS);
  return chosen && !first.includes(chosen) ? [...first, chosen] : first;
}

/** A graph's text, cut where it is longer than anyone reads. */
export function textOf({ text }: Graph): string {
  const more = text.length - MAX_TEXT;
  return more > 0 ? `${text.slice(0, MAX_TEXT)}\n… ${more.toLocaleString('en')} more characters` : text;
}

/** Graphs of these stages, in the order of the record. */
export function graphsOf(record: Compilation, stages: readonly Stage[]): Graph[] {
  return record.graphs.filter((graph) => stages.includes(graph.stage));
}

/** What a tab calls a graph: its stage, with the capture and the direction where there are several, and which it is of the graphs within one. */
export function graphTitle(record: Compilation, graph: Graph): string {
  const [capture, ...rest] = graph.id.split('.');
  const several = new Set(record.graphs.map((each) => each.id.split('.')[0])).size > 1;
  const trains = record.graphs.some((each) => each.stage === 'backward');
  const below = graph.stage === 'loops' || graph.stage === 'fused';
  const direction = below && trains ? (rest.includes('bw') ? 'bw' : 'fw') : '';
  const own = rest[rest.length - 1];
  const name = ((below || own === 'jaxpr') && own) || TITLES[graph.stage]; // two texts of one stage differ in their ids
  const within = rest.slice(1, below ? -1 : undefined).join('.');
  return [several && capture, direction, within, name].filter(Boolean).join(' ');
}
