/** Links between everything in a record; the Python side of the same index is nbcompile/record/provenance.py. */
import type { Compilation, Graph, Kernel, Node } from './generated/record';

/** Lines of one span that are followed: a record may say that a node spans billions. */
const MAX_LINES = 2_000;
/** Steps from what was made to what it was made from: it is a few stages. A record may hold a chain of any length. */
const MAX_DEPTH = 24;
/** Links that are followed at once: everything may be made from everything. */
const MAX_STEPS = 200_000;

/** Id of line `line` (from 1) of a kernel's first source. */
export function generated(kernel: string, line: number): string {
  return `${kernel}:${line}`;
}

export class Links {
  readonly nodes = new Map<string, Node>();
  readonly kernels = new Map<string, Kernel>();
  /** The graph that each node is in. */
  readonly graphs = new Map<string, Graph>();
  private readonly made = new Map<string, string[]>();
  private readonly above = new Map<string, readonly string[]>();
  private readonly below = new Map<string, string[]>();
  private readonly starts = new Map<number, string[]>();
  private readonly direct = new Map<string, number[]>();

  /** `file`: the source that lines refer to; empty for the cell. */
  constructor(record: Compilation, file = '') {
    for (const graph of record.graphs) {
      for (const node of graph.nodes) {
        this.nodes.set(node.id, node);
        this.graphs.set(node.id, graph);
        this.above.set(node.id, node.origins);
        this.place(node, file);
      }
    }
    for (const kernel of record.kernels) {
      this.kernels.set(kernel.id, kernel);
      // The kernel and its node in the fused graph share an id: its loops are its origins.
      this.above.set(kernel.id, [...new Set([...(this.above.get(kernel.id) ?? []), ...kernel.loops])]);
      for (const link of kernel.line_map) this.above.set(generated(kernel.id, link.line), link.origins);
    }
    for (const each of record.decisions) this.above.set(each.id, [each.producer, each.consumer]);
    this.decided(record);
    for (const [id, parents] of this.above) {
      for (const parent of parents) {
        push(this.below, parent, id);
      }
    }
  }

  /** Finds for each kernel the decisions about two of its loops. */
  private decided({ kernels, decisions }: Compilation): void {
    const holders = new Map<string, string[]>();
    for (const kernel of kernels) for (const loop of kernel.loops) push(holders, loop, kernel.id);
    for (const { id, producer, consumer } of decisions) {
      const second = holders.get(consumer) ?? [];
      for (const kernel of holders.get(producer) ?? []) {
        if (second.includes(kernel)) push(this.made, kernel, id);
      }
    }
  }

  /** The decisions that made this kernel: those about two of its loops. */
  decisionsOf(kernel: string): readonly string[] {
    return this.made.get(kernel) ?? [];
  }

  private place(node: Node, file: string): void {
    const lines = new Set<number>();
    for (const span of node.spans) {
      if (span.file !== file) continue;
      const end = Math.min(span.end_line ?? span.line, span.line + MAX_LINES);
      if (lines.size > MAX_LINES) break;
      for (let line = span.line; line <= end; line++) lines.add(line);
    }
    if (lines.size) this.direct.set(node.id, [...lines]);
    for (const line of lines) {
      push(this.starts, line, node.id);
    }
  }

  has(id: string): boolean {
    return this.above.has(id);
  }

  /** The kernel that a generated line is of; empty for other ids. */
  owner(id: string): string {
    const kernel = id.slice(0, Math.max(0, id.lastIndexOf(':')));
    return this.kernels.has(kernel) ? kernel : '';
  }

  /** What the given ids were made from, and they themselves. */
  up(ids: Iterable<string>): Set<string> {
    return walk(ids, this.above, MAX_DEPTH);
  }

  /** What was made from the given ids, and they themselves. */
  down(ids: Iterable<string>): Set<string> {
    return walk(ids, this.below);
  }

  /** Lines that the given ids come from. */
  lines(ids: Iterable<string>): Set<number> {
    const out = new Set<number>();
    for (const id of this.up(ids)) for (const line of this.direct.get(id) ?? []) out.add(line);
    return out;
  }

  /** Ids of everything that came from this line. */
  atLine(line: number): Set<string> {
    return this.down(this.starts.get(line) ?? []);
  }
}

function push<K>(lists: Map<K, string[]>, key: K, value: string): void {
  const list = lists.get(key);
  if (list) list.push(value);
  else lists.set(key, [value]);
}

function walk(from: Iterable<string>, edges: ReadonlyMap<string, readonly string[]>, depth = Infinity): Set<string> {
  const seen = new Set(from);
  let [level, room] = [[...seen], MAX_STEPS];
  for (let step = 0; level.length && step < depth; step++) {
    const next: string[] = [];
    for (const id of level) {
      for (const each of edges.get(id) ?? []) {
        if (--room < 0) return seen;
        if (seen.has(each)) continue;
        seen.add(each);
        next.push(each);
      }
    }
    level = next;
  }
  return seen;
}
