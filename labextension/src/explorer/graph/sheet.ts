/** A drawing beside the record that it is of: what each of its boxes stands for. */
import type { Graph, Node } from '../../record/generated/record';
import type { Call, Drawing, DrawnGroup } from '../../record/generated/scene';
import type { Focus, Lit, State } from '../state';
import { bytes, percent, seconds, shape } from '../units';
import type { Geometry, PlacedBox } from './geometry';

export type Fate = 'fused' | 'library' | 'fallback' | 'captured' | 'input' | 'plain';

const FATES: Record<string, Fate> = { f: 'fused', l: 'library', b: 'fallback', c: 'captured' };
const WORDS: Record<Fate, string> = {
  fused: 'in a generated kernel', library: 'a library call', fallback: 'runs by torch: no lowering',
  captured: 'captured', input: 'an input', plain: '',
};

export class Sheet {
  /** The graph's nodes, then those of the graph that its kernels' loops are in. */
  readonly nodes: readonly Node[];
  readonly refs = new Map<string, number>();
  /** Of each group: refs of what stands in it. */
  readonly held: readonly (readonly number[])[];
  private readonly own: number;
  private readonly inner: Drawing | undefined;

  constructor(
    readonly state: State,
    readonly graph: Graph,
    readonly drawing: Drawing,
  ) {
    const { record, scene } = state.data;
    const loops = drawing.inner ? record.graphs.find((each) => each.id === drawing.inner) : undefined;
    this.inner = scene?.drawings.find((each) => drawing.inner !== '' && each.graph === drawing.inner);
    this.own = graph.nodes.length;
    this.nodes = loops ? [...graph.nodes, ...loops.nodes] : graph.nodes;
    this.nodes.forEach((node, ref) => this.refs.set(node.id, ref));
    this.held = drawing.groups.map(refsOf);
  }

  group(ref: number): DrawnGroup | undefined {
    return ref < 0 ? this.drawing.groups[-ref] : undefined;
  }

  /** The record's id of a box; a group that is no kernel has one of its own. */
  idOf(ref: number): string {
    return this.group(ref)?.id ?? this.nodes[ref]?.id ?? '';
  }

  /** Whether a ref is that of a loop within a kernel. */
  within(ref: number): boolean {
    return ref >= this.own;
  }

  label(ref: number): string {
    const group = this.group(ref);
    if (group) return group.label;
    const known = this.within(ref) ? this.inner?.labels[ref - this.own] : this.drawing.labels[ref];
    const node = this.nodes[ref];
    return known || node?.op || node?.name || '';
  }

  fate(ref: number): Fate {
    const group = this.group(ref);
    if (group) return Object.values(FATES).find((fate) => fate === group.fate) ?? 'plain';
    if (this.nodes[ref]?.kind === 'input') return 'input';
    return this.within(ref) ? 'fused' : (FATES[this.drawing.fates[ref] ?? ''] ?? 'plain');
  }

  /** What runs, where the box is a kernel, a library call or a fallback of a fused graph. */
  call(ref: number): Call | undefined {
    const group = this.group(ref);
    if (group) return group.kind === 'kernel' ? this.state.calls.get(group.id) : undefined;
    return this.state.calls.get(this.nodes[ref]?.id ?? '');
  }

  /** What a box points at: a kernel or a node; for another group all nodes in it. */
  focus(ref: number): Focus {
    const group = this.group(ref);
    if (!group) return { ids: [this.nodes[ref]?.id ?? ''] };
    if (group.kind === 'kernel') return { ids: [group.id] };
    const ids = new Set<string>();
    for (const at of this.under(-ref)) {
      const inside = this.drawing.groups[at] as DrawnGroup;
      if (inside.kind === 'kernel') ids.add(inside.id);
      else for (const each of this.held[at] ?? []) if (each >= 0) ids.add(this.nodes[each]?.id ?? '');
    }
    return { ids: [...ids] };
  }

  /** Places of a group and of all groups in it. */
  under(group: number): number[] {
    const inside = new Set([group]);
    this.drawing.groups.forEach((each, at) => inside.has(each.parent) && at > each.parent && inside.add(at));
    return [...inside];
  }

  /** Places of the groups around a group, from the inside outwards, and itself. */
  around(group: number): number[] {
    const out: number[] = [];
    for (let at = group; at >= 0; ) {
      out.push(at);
      const parent = this.drawing.groups[at]?.parent ?? -1;
      at = parent < at ? parent : -1;
    }
    return out;
  }

  /** Place of the group that a node stands in, or is; of a kernel its own. */
  groupOf(ref: number): number {
    const kernel = this.drawing.groups.findIndex((group) => group.kind === 'kernel' && group.id === this.nodes[ref]?.id);
    if (kernel > 0) return this.drawing.groups[kernel]?.parent ?? 0;
    return Math.max(0, this.held.findIndex((refs) => refs.includes(ref)));
  }

  /** Places of the groups of equal modules that have to be unfolded to show a box. */
  beyondFirst({ ref, group }: { ref: number; group: number }): number[] {
    let inner = ref;
    return this.around(group).filter((at) => {
      const hidden = this.drawing.groups[at]?.kind === 'repeat' && this.held[at]?.[0] !== inner;
      inner = -at;
      return hidden;
    });
  }

  /** Which boxes of a geometry are lit, by their places: 1 if so. A closed group is if anything in it is. */
  lit(geometry: Geometry, lit: Lit): Uint8Array {
    const { groups } = this.drawing;
    const inGroup = new Uint8Array(groups.length);
    for (let at = groups.length - 1; at >= 0; at--) {
      const group = groups[at] as DrawnGroup;
      const some = (): boolean => (this.held[at] ?? []).some((ref) => (ref < 0 ? inGroup[-ref] === 1 : this.isLit(ref, lit)));
      inGroup[at] = (group.kind === 'kernel' ? lit.ids.has(group.id) : some()) ? 1 : 0;
    }
    const out = new Uint8Array(geometry.boxes.length);
    geometry.boxes.forEach((box, at) => {
      const kernel = groups[box.group]?.kind !== 'kernel' || inGroup[box.group] === 1;
      out[at] = (box.ref < 0 ? inGroup[-box.ref] === 1 : kernel && this.isLit(box.ref, lit)) ? 1 : 0;
    });
    return out;
  }

  private isLit(ref: number, lit: Lit): boolean {
    return lit.ids.has(this.nodes[ref]?.id ?? '');
  }

  /** What stands beside a group's title, the longest first. */
  notes(ref: number): string[] {
    const group = this.group(ref);
    if (!group) return [];
    const call = this.call(ref);
    if (!call) return [group.note, ''];
    const time = timeOf(call);
    return [[bytes(call.bytes), percent(call.share)].join(' · '), time, percent(call.share), ''];
  }

  /** A box in words: its name, then what else is known of it, a line each. */
  words(ref: number): string[] {
    const group = this.group(ref);
    const call = this.call(ref);
    const lines = group ? [group.label] : this.nodeWords(ref);
    if (group?.note) lines.push(group.note);
    if (call) {
      lines.push([`${bytes(call.bytes)} moved, ${percent(call.share)} of all`, timeOf(call)].filter(Boolean).join(' · '));
    }
    return lines;
  }

  private nodeWords(ref: number): string[] {
    const node = this.nodes[ref];
    if (!node) return [];
    const what = this.tensor(ref);
    const label = this.label(ref);
    return [
      node.kind === 'input' ? node.name : label,
      [node.op === label || node.kind === 'input' ? '' : node.op, what].filter(Boolean).join(' '),
      [WORDS[this.fate(ref)], node.module && `in ${node.module}`].filter(Boolean).join(', '),
      node.note,
    ].filter((line) => line !== '');
  }

  /** `f32[16,64]`, of a node's result. */
  tensor(ref: number): string {
    const node = this.nodes[ref];
    return node && node.shape ? shape(node.shape, node.dtype) : '';
  }

  /** All that a reader might type to find a box. */
  text(ref: number): string {
    const group = this.group(ref);
    const node = this.nodes[ref];
    const parts = group ? [group.label, group.id] : [this.label(ref), node?.name, node?.op, node?.module, this.tensor(ref)];
    return parts.join('\n').toLowerCase();
  }

  /** Refs, with the group that each stands in, whose text has all words of a query. */
  find(query: string): { ref: number; group: number }[] {
    const wanted = query.toLowerCase().split(/\s+/).filter(Boolean);
    if (!wanted.length) return [];
    const out: { ref: number; group: number }[] = [];
    this.held.forEach((refs, at) => {
      for (const ref of refs) {
        const text = this.text(ref);
        if (wanted.every((word) => text.includes(word))) out.push({ ref, group: at });
      }
    });
    return out;
  }
}

function refsOf(group: DrawnGroup): number[] {
  return group.rows.flatMap((row) => row.filter((_, n) => n % 3 === 0));
}

export function timeOf(call: Call): string {
  if (call.seconds !== null) return seconds(call.seconds);
  return call.predicted === null ? '' : `about ${seconds(call.predicted)}`;
}

/** Whether two boxes are the same thing, before and after a group was opened. */
export function same(a: Pick<PlacedBox, 'ref' | 'group'>, b: Pick<PlacedBox, 'ref' | 'group'>): boolean {
  return a.ref === b.ref && a.group === b.group;
}
