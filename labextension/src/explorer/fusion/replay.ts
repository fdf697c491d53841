/** The fusion pass once more: what was joined when, from the decisions in the order in which they were made. */
import type { Compilation, Decision } from '../../record/generated/record';

const LOOPS: readonly string[] = ['pointwise', 'reduction', 'scan', 'scatter'];

/** A decision in its time. Groups are ids of loops, and of library calls, in the order of the program. */
export interface Moment {
  decision: Decision;
  /** The two groups that were offered to each other; one if they were together already. */
  before: string[][];
  /** What became of them. */
  after: string[][];
  /** Bytes saved by this decision and all accepted before it, in this graph. */
  saved: number;
  /** Groups of loops of this graph once it was made. */
  groups: number;
}

export class Replay {
  private readonly order = new Map<string, number>();
  private readonly loops = new Map<string, string[]>();

  constructor(private readonly record: Compilation) {
    for (const graph of record.graphs) {
      if (graph.stage !== 'loops') continue;
      const loops = graph.nodes.filter((node) => LOOPS.includes(node.kind)).map((node) => node.id);
      for (const node of graph.nodes) this.order.set(node.id, this.order.size);
      this.loops.set(graph.id, loops);
    }
  }

  get steps(): number {
    return this.record.decisions.length;
  }

  /** Decision number `step`, from 0. */
  at(step: number): Moment | null {
    const decision = this.record.decisions[step];
    if (!decision) return null;
    const groups = this.groups(decision.graph, step);
    const [producer, consumer] = [groups.get(decision.producer), groups.get(decision.consumer)];
    const both = [producer ?? [decision.producer], consumer ?? [decision.consumer]];
    const before = producer && producer === consumer ? [producer] : both;
    const after = decision.accepted ? [this.sorted(before.flat())] : before;
    const done = this.record.decisions.slice(0, step + 1).filter((each) => each.accepted && each.graph === decision.graph);
    return {
      decision,
      before: before.map((group) => this.sorted(group)),
      after: after.map((group) => this.sorted(group)),
      saved: done.reduce((sum, each) => sum + each.bytes_saved, 0),
      groups: new Set(this.groups(decision.graph, step + 1).values()).size,
    };
  }

  /** The group of every loop of a fused graph after its first decisions, up to number `end` of the record. */
  groups(fused: string, end = this.steps): Map<string, string[]> {
    const parent = this.record.graphs.find((graph) => graph.id === fused)?.parent ?? '';
    const groups = new Map((this.loops.get(parent) ?? []).map((loop) => [loop, [loop]]));
    for (const { graph, accepted, producer, consumer } of this.record.decisions.slice(0, end)) {
      if (graph !== fused || !accepted) continue;
      const into = groups.get(producer) ?? [producer];
      const from = groups.get(consumer) ?? [consumer];
      if (into === from) continue;
      const joined = [...into, ...from];
      for (const id of joined) groups.set(id, joined);
    }
    return groups;
  }

  private sorted(ids: readonly string[]): string[] {
    return [...ids].sort((a, b) => (this.order.get(a) ?? 0) - (this.order.get(b) ?? 0));
  }
}
