/** What else than fates can colour a drawing: times, bytes, errors, saved tensors. None moves anything. */
import type { Accuracy, Node } from '../../record/generated/record';
import type { Call } from '../../record/generated/scene';
import { bytes, seconds, times } from '../units';
import type { Sheet } from './sheet';

export type OverlayId = 'fate' | 'time' | 'bytes' | 'error' | 'saved';

/** `heat`: step of the colour scale, 1 to {@link STEPS}. `text` is written beside the name. */
export interface Mark {
  heat: number;
  text: string;
  /** It is, or holds, the first node whose value differs. */
  first?: boolean;
}

export interface Overlay {
  id: OverlayId;
  /** What the colours say, in a few words. */
  about: string;
  /** The upper end of each step of the scale; empty: there is no scale, a mark is a mark. */
  steps: string[];
  /** The first node whose value differs from eager's. */
  first?: number;
  of(ref: number): Mark | null;
}

export const STEPS = 5;
export const OVERLAYS: readonly { id: OverlayId; label: string }[] = [
  { id: 'fate', label: 'fate' },
  { id: 'time', label: 'time' },
  { id: 'bytes', label: 'bytes' },
  { id: 'error', label: 'error' },
  { id: 'saved', label: 'saved tensors' },
];

/** An overlay of a drawing; a string says why the record has none. */
export function overlay(sheet: Sheet, id: OverlayId): Overlay | string {
  if (id === 'time') return timeOverlay(sheet);
  if (id === 'bytes') return bytesOverlay(sheet);
  if (id === 'error') return errorOverlay(sheet);
  if (id === 'saved') return savedOverlay(sheet);
  return { id, about: '', steps: [], of: () => null };
}

function timeOverlay(sheet: Sheet): Overlay | string {
  const known = [...sheet.state.calls.values()];
  const measured = known.some((call) => call.seconds !== null);
  const value = (call: Call): number => (measured ? call.seconds : call.predicted) ?? 0;
  if (!known.some((call) => value(call) > 0)) return 'The record has no times of single kernels.';
  return scaled(sheet, 'time', measured ? 'measured time of its calls' : 'predicted time of its kernels', sums(sheet, value), seconds);
}

function bytesOverlay(sheet: Sheet): Overlay | string {
  if (sheet.graph.stage === 'fused') {
    return scaled(sheet, 'bytes', 'bytes that a call moves', sums(sheet, (call) => call.bytes), bytes);
  }
  const of = new Map<number, number>();
  sheet.nodes.forEach((node, ref) => node.bytes > 0 && of.set(ref, node.bytes));
  if (!of.size) return 'The record has no sizes for this graph.';
  return scaled(sheet, 'bytes', 'size of the result', of, bytes);
}

/** The calls that a box is in, or that are in it, each once, summed; by ref. Loops are left to their kernel. */
function sums(sheet: Sheet, value: (call: Call) => number): Map<number, number> {
  const { groups } = sheet.drawing;
  const { calls } = sheet.state;
  const serving = serves(sheet);
  for (let at = groups.length - 1; at > 0; at--) {
    const group = groups[at];
    const own = group?.kind === 'kernel' ? calls.get(group.id) : undefined;
    const all = own ? [own] : (sheet.held[at] ?? []).flatMap((ref) => [...(serving.get(ref) ?? [])]);
    if (all.length) serving.set(-at, new Set(all));
  }
  return new Map([...serving].map(([ref, each]) => [ref, [...each].reduce((sum, call) => sum + value(call), 0)]));
}

/** The calls that each node led to. */
function serves(sheet: Sheet): Map<number, Set<Call>> {
  const out = new Map<number, Set<Call>>();
  for (const call of sheet.state.calls.values()) {
    for (const id of sheet.state.links.up([call.id])) {
      const ref = sheet.refs.get(id);
      if (ref === undefined || sheet.within(ref) || sheet.nodes[ref]?.kind === 'input') continue;
      const known = out.get(ref);
      if (known) known.add(call);
      else out.set(ref, new Set([call]));
    }
  }
  return out;
}

/** Steps as squares, since most of a sum is often in a few. The scale is that of single calls and nodes. */
function scaled(
  sheet: Sheet, id: OverlayId, about: string, values: ReadonlyMap<number, number>, word: (value: number) => string,
): Overlay {
  const single = [...values].filter(([ref]) => ref >= 0 || sheet.group(ref)?.kind === 'kernel');
  const most = Math.max(0, ...single.map(([, value]) => value));
  const step = (value: number): number => Math.min(STEPS, Math.max(1, Math.ceil(STEPS * Math.sqrt(value / most) - 1e-9)));
  return {
    id, about,
    steps: Array.from({ length: STEPS }, (_, n) => word(most * ((n + 1) / STEPS) ** 2)),
    of: (ref) => {
      const value = values.get(ref);
      return value === undefined || !(value > 0) ? null : { heat: step(value), text: word(value) };
    },
  };
}

/** Whether the record is of a check: then the errors of single nodes are known. */
export function isChecked(nodes: readonly Node[]): boolean {
  return nodes.some((node) => node.error !== null);
}

/** Errors of single nodes, by powers of ten. */
function nodeErrors(sheet: Sheet): Overlay {
  const known = new Map(sheet.nodes.flatMap((node, ref) => (node.error === null ? [] : [[ref, node.error] as const])));
  const first = sheet.nodes.findIndex((node) => node.differs);
  const within = new Map<number, number[]>();
  for (let at = sheet.drawing.groups.length - 1; at > 0; at--) {
    const inside = (sheet.held[at] ?? []).flatMap((ref) => (ref < 0 ? (within.get(ref) ?? []) : [ref]));
    within.set(-at, inside);
    const errors = inside.flatMap((ref) => known.get(ref) ?? []);
    if (errors.length) known.set(-at, Math.max(...errors));
  }
  const powers = [...known.values()].filter((error) => error > 0).map(Math.log10);
  const low = Math.floor(Math.min(...powers, 0));
  const high = Math.max(low + 1, Math.ceil(Math.max(...powers, -300)));
  const step = (error: number): number =>
    error > 0 ? Math.min(STEPS, Math.max(1, Math.ceil((STEPS * (Math.log10(error) - low)) / (high - low)))) : 1;
  return {
    id: 'error', about: 'error against float64', first,
    steps: Array.from({ length: STEPS }, (_, n) => (10 ** (low + ((high - low) * (n + 1)) / STEPS)).toExponential(0)),
    of: (ref) => {
      const error = known.get(ref);
      if (error === undefined) return null;
      const isFirst = first >= 0 && (ref === first || within.get(ref)?.includes(first) === true);
      const text = error ? error.toExponential(1) : 'exact';
      return { heat: step(error), text: ref === first ? `${text}, the first that differs` : text, first: isFirst };
    },
  };
}

function errorOverlay(sheet: Sheet): Overlay | string {
  if (isChecked(sheet.graph.nodes)) return nodeErrors(sheet);
  const { record } = sheet.state.data;
  const own = record.accuracy.filter((row) => row.contestant === record.backend && row.error !== null);
  if (!own.length) return 'The record has no errors: nothing was compared with eager.';
  const outputs = own.filter((row) => /^output\[\d+\]$/.test(row.output));
  const captured = record.graphs.filter((graph) => graph.stage === 'fx');
  const from = captured[0]?.outputs ?? [];
  // A row names an output of the cell by its place: only of a single graph is that the graph's own.
  if (captured.length !== 1 || !outputs.length) return 'The outputs whose error is known are not those of one graph.';
  const marks = new Map<number, Mark>();
  for (const row of outputs) {
    const id = from[Number(row.output.slice(7, -1))];
    if (id === undefined) continue;
    const made = sheet.graph.stage === 'fx' ? new Set([id]) : sheet.state.links.down([id]);
    for (const each of sheet.graph.outputs) {
      const ref = made.has(each) ? sheet.refs.get(each) : undefined;
      if (ref !== undefined) marks.set(ref, errorMark(row));
    }
  }
  if (!marks.size) return 'No output of this graph is one whose error is known.';
  const { groups } = sheet.drawing;
  groups.forEach((group, at) => {
    const mark = group.kind === 'kernel' ? marks.get(sheet.refs.get(group.id) ?? -1) : undefined;
    if (mark) marks.set(-at, mark);
  });
  return {
    id: 'error', about: "error of outputs, of eager's",
    steps: ['½×', '1×', '2×', '8×', 'over 8×'],
    of: (ref) => marks.get(ref) ?? null,
  };
}

function errorMark(row: Accuracy): Mark {
  const error = row.error ?? 0;
  if (row.eager_error === null || row.eager_error === 0) {
    return { heat: row.agrees ? 1 : STEPS, text: `error ${error.toExponential(1)}` };
  }
  const ratio = error / row.eager_error;
  const heat = 1 + [0.5, 1, 2, 8].filter((limit) => ratio > limit).length;
  return { heat, text: `${times(ratio)} eager's error` };
}

function savedOverlay(sheet: Sheet): Overlay | string {
  const { record } = sheet.state.data;
  if (!record.graphs.some((graph) => graph.saved.length)) return 'Nothing is saved: the record has no backward graph.';
  if (sheet.graph.stage === 'backward' || sheet.graph.id.includes('.bw')) {
    return 'Choose a forward graph: there tensors are saved for the backward one.';
  }
  const sizes = new Map<number, number>();
  for (const id of record.graphs.flatMap((graph) => graph.saved)) {
    const size = sheet.state.links.nodes.get(id)?.bytes ?? 0;
    for (const ref of savedRefs(sheet, id)) sizes.set(ref, (sizes.get(ref) ?? 0) + size);
  }
  sheet.drawing.groups.forEach((group, at) => {
    const size = group.kind === 'kernel' ? sizes.get(sheet.refs.get(group.id) ?? -1) : undefined;
    if (size !== undefined) sizes.set(-at, size);
  });
  const marks = new Map([...sizes].map(([ref, size]) => [ref, { heat: 3, text: size ? `saves ${bytes(size)}` : 'saved' }]));
  return { id: 'saved', about: 'saved for backward', steps: [], of: (ref) => marks.get(ref) ?? null };
}

/** What holds a saved tensor in this graph: above the forward graph what it came from, below what gives it out. */
function savedRefs(sheet: Sheet, id: string): number[] {
  const { graph, refs } = sheet;
  if (graph.stage === 'forward') return ref(refs, id);
  if (graph.stage === 'fx' || graph.stage === 'joint') {
    return [...sheet.state.links.up([id])].flatMap((each) => ref(refs, each));
  }
  const made = sheet.state.links.down([id]);
  return [...new Set(graph.outputs)].filter((each) => made.has(each)).flatMap((each) => ref(refs, each));
}

function ref(refs: ReadonlyMap<string, number>, id: string): number[] {
  const known = refs.get(id);
  return known === undefined ? [] : [known];
}
