/** What a record says of one node: of its result, its place in the program, and what became of it. */
import type { Decision, Graph, Kernel, Node } from '../../record/generated/record';
import type { Call } from '../../record/generated/scene';
import type { State } from '../state';

/** A pair that was not fused, by the name of the other loop and why. */
export interface Refusal {
  decision: Decision;
  other: string;
}

export interface Properties {
  node: Node;
  graph: Graph;
  /** The kernel that the node itself is, in a fused graph. */
  kernel: Kernel | undefined;
  call: Call | undefined;
  /** Lines of the cell. */
  lines: number[];
  /** The innermost place in the user's files that is not the cell: `model.py:7`. */
  place: string;
  /** The kernels that do its work, and the calls of other libraries. */
  kernels: Kernel[];
  calls: Call[];
  inputs: Node[];
  users: Node[];
  refused: Refusal[];
  /** Pairs that were fused with it. */
  fused: number;
}

const WORKS: readonly Node['kind'][] = ['compute', 'view', 'pointwise', 'reduction', 'scan', 'scatter', 'library', 'fallback', 'kernel'];

/** Of a node by its id; `null`: no graph of the record has it. */
export function propertiesOf(state: State, id: string): Properties | null {
  const { links } = state;
  const graph = links.graphs.get(id);
  const node = links.nodes.get(id);
  if (!graph || !node) return null;
  const kernel = links.kernels.get(id);
  const below = links.down([id]);
  const span = [...node.spans].reverse().find((each) => each.file);
  const { record } = state.data;
  const own = new Set([id, ...(kernel ? [...kernel.loops, ...node.origins] : [...below])]);
  const about = record.decisions.filter((each) => own.has(each.producer) !== own.has(each.consumer));
  return {
    node, graph, kernel, call: state.calls.get(id),
    lines: [...links.lines([id])].sort((a, b) => a - b),
    place: span ? `${span.file.split('/').pop()}:${span.line}` : '',
    kernels: kernel ? [] : record.kernels.filter((each) => below.has(each.id)),
    calls: [...state.calls.values()].filter((each) => each.id !== id && below.has(each.id) && each.fate !== 'fused'),
    inputs: node.inputs.flatMap((each) => links.nodes.get(each) ?? []),
    users: graph.nodes.filter((each) => each.inputs.includes(id)),
    refused: about.filter((each) => !each.accepted).map((decision) => ({ decision, other: nameOf(state, own.has(decision.producer) ? decision.consumer : decision.producer) })),
    fused: record.decisions.filter((each) => each.accepted && (own.has(each.producer) || own.has(each.consumer))).length,
  };
}

/** What became of a node that no kernel and no call does the work of. */
export function withoutWork(state: State, { node, graph, kernels, calls, call, kernel }: Properties): string {
  // Of a compiler that shows no kernels nothing is known.
  if (!state.calls.size || kernel || call || kernels.length || calls.length || !WORKS.includes(node.kind)) return '';
  if (node.kind === 'view') return 'a view: no work of its own';
  return graph.stage === 'loops' || graph.stage === 'fused' ? '' : 'nothing is left of it in the generated code';
}

function nameOf(state: State, id: string): string {
  return state.links.nodes.get(id)?.name ?? id;
}
