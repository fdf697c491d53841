/** The compiler's own steps after the capture, from what their passes left in the record. */
import type { Compilation, Graph, Node } from '../../record/generated/record';
import { graphTitle } from '../stages';
import { count, seconds } from '../units';

/** A line that is shown: of a graph, or of a kernel. */
export interface Row {
  text: string;
  /** Said beside it. */
  side?: string;
}

/** One step: the rows that it reads (first and last), what became of them, and the ids of that. */
export interface Happening {
  first: number;
  last: number;
  said: string;
  made: readonly string[];
  /** What the rows stand for in the record. */
  from: readonly string[];
  /** Id of a graph that the step made. */
  graph?: string;
}

export interface Story {
  noun: string;
  rows: readonly Row[];
  steps: readonly Happening[];
}

/** The passes in the order of the pipeline. */
export function passes(record: Compilation): Story {
  const known = new Map(record.graphs.map((graph) => [graph.id, graph]));
  const size = (id: string): string => {
    const graph = known.get(id);
    return graph ? count(graph.nodes.length, 'node') : '';
  };
  const rows = record.passes.map((pass) => ({ text: pass.name, side: seconds(pass.milliseconds / 1e3) }));
  const steps = record.passes.map((pass, at) => {
    const way = [pass.before, pass.after].filter((id, place, all) => id && (place === 0 || id !== all[0]));
    const sized = way.map((id) => (size(id) ? `${id} (${size(id)})` : id)).join(' → ');
    const said = [sized, pass.note].filter(Boolean).join(' · ') || 'it left no graph';
    const graph = known.has(pass.after) ? { graph: pass.after } : {};
    return { first: at, last: at, said, made: [], from: [], ...graph };
  });
  return { noun: 'pass', rows, steps };
}

/** Each node of the ATen graphs, and the loops that it became. */
export function lowering(record: Compilation): Story {
  const rows: Row[] = [];
  const steps: Happening[] = [];
  for (const loops of record.graphs) {
    const aten = loops.stage === 'loops' ? record.graphs.find((graph) => graph.id === loops.parent) : undefined;
    if (!aten) continue;
    const made = byOrigin(loops);
    for (const node of aten.nodes) {
      if (node.kind === 'input' || node.kind === 'output') continue;
      const became = made.get(node.id) ?? [];
      rows.push({ text: node.text || node.name, side: graphTitle(record, aten) });
      const at = rows.length - 1;
      steps.push({ first: at, last: at, said: lowered(node, became), made: became.map((each) => each.id), from: [node.id] });
    }
  }
  return { noun: 'node', rows, steps };
}

function byOrigin(loops: Graph): Map<string, Node[]> {
  const made = new Map<string, Node[]>();
  for (const node of loops.nodes) {
    if (node.kind === 'input' || node.kind === 'output') continue;
    for (const origin of node.origins) made.set(origin, [...(made.get(origin) ?? []), node]);
  }
  return made;
}

function lowered(node: Node, became: readonly Node[]): string {
  const calls = became.filter((each) => each.kind === 'library' || each.kind === 'fallback');
  const loops = became.length - calls.length;
  if (!became.length) return node.kind === 'view' ? 'a view: no loop, its reader reads through it' : `no loop: what is made of it is computed elsewhere${node.note ? ` (${node.note})` : ''}`;
  const words = [loops && count(loops, 'loop'), calls.length && count(calls.length, 'call into a library', 'calls into a library')];
  return `becomes ${words.filter(Boolean).join(' and ')}`;
}

/** Each kernel's first source, block by block: lines in a row that were made for the same loops. */
export function codegen(record: Compilation): Story {
  const rows: Row[] = [];
  const steps: Happening[] = [];
  for (const kernel of record.kernels) {
    const [language, text] = Object.entries(kernel.sources)[0] ?? [];
    if (!text) continue;
    const start = rows.length;
    for (const [at, line] of text.replace(/\n$/, '').split('\n').entries()) rows.push(at ? { text: line } : { text: line, side: `${kernel.name}, ${language}` });
    for (const link of [...kernel.line_map].sort((a, b) => a.line - b.line)) {
      const at = start + link.line - 1;
      if (at < start || at >= rows.length) continue;
      const last = steps[steps.length - 1];
      if (last && last.last === at - 1 && last.last >= start && String(last.made) === String(link.origins)) last.last = at;
      else steps.push({ first: at, last: at, said: '', made: link.origins, from: [kernel.id] });
    }
  }
  for (const step of steps) {
    const lines = step.last - step.first + 1;
    step.said = `${count(lines, 'line')} printed for ${count(step.made.length, 'loop')}`;
  }
  return { noun: 'block', rows, steps };
}
