/**
 * Which parts of two compilations are the same part. Nodes of the first stage are matched by where in the cell
 * they come from and what they do, those of each later stage by what they were made from; kernels by the
 * loops that they hold. Nothing is matched by name alone: names are numbered anew in every compile.
 */
import type { Compilation, Decision, Graph, Node } from '../../record/generated/record';
import type { Call } from '../../record/generated/scene';
import { Links } from '../../record/links';
import type { Unpacked } from '../../record/read';
import { lineMap } from './lines';

export type Fate = 'unchanged' | 'changed' | 'added' | 'removed' | 'split' | 'merged' | 'regrouped';

/** Calls before and after that hold the same work. */
export interface Pair {
  fate: Fate;
  before: Call[];
  after: Call[];
}

/** A decision about the same two loops that fell differently; `null` on the side where that pair was no candidate. */
export interface DecisionPair {
  before: Decision | null;
  after: Decision | null;
  /** Names of the two loops, for a reader. */
  producer: string;
  consumer: string;
}

export interface StageCount {
  stage: Graph['stage'];
  /** Whether both records have this stage at all. */
  both: boolean;
  matched: number;
  removed: Node[];
  added: Node[];
}

export interface Match {
  calls: Pair[];
  decisions: DecisionPair[];
  stages: StageCount[];
  /** Ids of `after` by the ids of `before`. */
  nodes: ReadonlyMap<string, string>;
}

/** Stages in the order they are made: each is matched by the ones before it. */
const ORDER: readonly Graph['stage'][] = ['fx', 'joint', 'forward', 'backward', 'loops'];
/** Part of the smaller of two kernels that both hold, from which they are about the same work. */
const OVERLAP = 0.5;

export function match(before: Unpacked, after: Unpacked): Match {
  const tokens = new Tokens(before.record, after.record);
  const stages = ORDER.map((stage) => tokens.stage(stage)).filter((each) => each !== null);
  return {
    calls: callPairs(before, after, tokens),
    decisions: decisionPairs(before.record, after.record, tokens),
    stages,
    nodes: tokens.nodes,
  };
}

/** A name for each node that both sides share where the node is the same. */
class Tokens {
  readonly before = new Map<string, string>();
  readonly after = new Map<string, string>();
  readonly nodes = new Map<string, string>();
  private readonly lines: ReadonlyMap<number, number>;
  private readonly edited: ReadonlySet<number>;

  constructor(
    private readonly a: Compilation,
    private readonly b: Compilation,
  ) {
    const [left, right] = [a.cell?.source ?? '', b.cell?.source ?? ''];
    this.lines = lineMap(left, right);
    const rows = [left.split('\n'), right.split('\n')] as [string[], string[]];
    // Columns say nothing on a line that was edited.
    this.edited = new Set([...this.lines].filter(([from, to]) => rows[0][from - 1]?.trimEnd() !== rows[1][to - 1]?.trimEnd()).map(([, to]) => to));
  }

  stage(stage: Graph['stage']): StageCount | null {
    const [left, right] = [nodesOf(this.a, stage), nodesOf(this.b, stage)];
    if (!left.length && !right.length) return null;
    const open = { left: new Set(left), right: new Set(right) };
    for (const exact of [true, false]) {
      const waiting = new Map<string, Node[]>();
      for (const node of open.right) push(waiting, this.key(node, stage, false, exact), node);
      for (const node of [...open.left]) {
        const found = waiting.get(this.key(node, stage, true, exact))?.shift();
        if (!found) continue;
        open.left.delete(node);
        open.right.delete(found);
        this.pair(node.id, found.id);
      }
    }
    for (const node of open.left) this.before.set(node.id, `before ${node.id}`);
    for (const node of open.right) this.after.set(node.id, `after ${node.id}`);
    return { stage, both: left.length > 0 && right.length > 0, matched: left.length - open.left.size, removed: [...open.left].filter(works), added: [...open.right].filter(works) };
  }

  private pair(a: string, b: string): void {
    this.nodes.set(a, b);
    this.before.set(a, `both ${b}`);
    this.after.set(b, `both ${b}`);
  }

  /** `exact`: by the very place, and all it was made from; else by the line, or one of these. */
  private key(node: Node, stage: string, before: boolean, exact: boolean): string {
    if (node.kind === 'input') return `${stage} input ${node.name}`;
    const parents = node.origins.map((id) => (before ? this.before : this.after).get(id)).filter((token) => token !== undefined);
    // Two compilers name and cut their loops in ways of their own: what these are made of is all they share.
    const foreign = stage === 'loops' && this.a.backend !== this.b.backend;
    const parts = foreign ? [stage] : [stage, node.op, node.kind];
    if (!parents.length) return [...parts, this.place(node, before, exact), exact ? node.module : ''].join('\n');
    return [...parts, ...(exact ? [...new Set(parents)].sort() : [parents[0]])].join('\n');
  }

  private place(node: Node, before: boolean, exact: boolean): string {
    const own = node.spans.map((span) => {
      if (span.file) return exact ? `${span.file}:${span.line}:${span.column}` : '';
      const line = before ? this.lines.get(span.line) : span.line;
      if (line === undefined) return 'gone';
      return exact && !this.edited.has(line) ? `${line}:${span.column}` : String(line);
    });
    return own.filter(Boolean).join(' ');
  }
}

function nodesOf(record: Compilation, stage: Graph['stage']): Node[] {
  return record.graphs.filter((graph) => graph.stage === stage).flatMap((graph) => graph.nodes);
}

function works(node: Node): boolean {
  return node.kind !== 'input' && node.kind !== 'output' && node.kind !== 'constant';
}

function push<K, V>(map: Map<K, V[]>, key: K, value: V): void {
  const list = map.get(key);
  if (list) list.push(value);
  else map.set(key, [value]);
}

// -- kernels and calls ---------------------------------------------------------------------------

/** What runs: the scene's calls, or the kernels alone in a record without one. */
export function callsOf(data: Unpacked): Call[] {
  if (data.scene) return data.scene.calls;
  const counted = new Map(data.record.graphs.map((graph) => [graph.id, graph.runs]));
  return data.record.kernels.map((kernel) => {
    const runs = counted.get(kernel.graph) ?? 1;
    const inAll = (each: number | null): number | null => (each === null ? null : each * runs);
    return {
      id: kernel.id, graph: kernel.graph, label: kernel.id, name: kernel.name, fate: 'fused', share: 0, lines: [], runs,
      bytes: (kernel.bytes_read + kernel.bytes_written) * runs,
      seconds: inAll(kernel.seconds), predicted: inAll(kernel.predicted_seconds),
    };
  });
}

/** The work of each call, as tokens: its loops, or where there are none the nodes that it was made from. */
function work(data: Unpacked, tokens: ReadonlyMap<string, string>): Map<string, Set<string>> {
  const links = new Links(data.record);
  const loops = new Set(nodesOf(data.record, 'loops').filter(works).map((node) => node.id));
  const aten = new Set([...nodesOf(data.record, 'forward'), ...nodesOf(data.record, 'backward')].filter(works).map((node) => node.id));
  const out = new Map<string, Set<string>>();
  for (const call of callsOf(data)) {
    const above = [...links.up([call.id, ...(links.kernels.get(call.id)?.loops ?? [])])];
    const held = above.filter((id) => loops.has(id));
    const ids = held.length ? held : above.filter((id) => aten.has(id));
    out.set(call.id, new Set(ids.map((id) => tokens.get(id) ?? `only ${id}`)));
  }
  return out;
}

function callPairs(before: Unpacked, after: Unpacked, tokens: Tokens): Pair[] {
  const works = { before: work(before, tokens.before), after: work(after, tokens.after) };
  const left = new Map(callsOf(before).map((call) => [call.id, call]));
  const right = new Map(callsOf(after).map((call) => [call.id, call]));
  const out: Pair[] = [];
  // What holds exactly the same goes first: loops that several kernels compute must not tie all of them together.
  const same = new Map<string, Call[]>();
  for (const call of right.values()) push(same, [...(works.after.get(call.id) ?? [])].sort().join('\n'), call);
  for (const call of [...left.values()]) {
    const held = [...(works.before.get(call.id) ?? [])].sort().join('\n');
    const found = held ? same.get(held)?.shift() : undefined;
    if (!found) continue;
    out.push({ fate: alikeCode(before, call, after, found) ? 'unchanged' : 'changed', before: [call], after: [found] });
    left.delete(call.id);
    right.delete(found.id);
  }
  for (const group of groups(left, right, works)) out.push({ fate: fateOf(group.before.length, group.after.length), ...group });
  return inOrder(out, after);
}

interface Works {
  before: ReadonlyMap<string, ReadonlySet<string>>;
  after: ReadonlyMap<string, ReadonlySet<string>>;
}

interface Near {
  before: ReadonlyMap<string, readonly string[]>;
  after: ReadonlyMap<string, readonly string[]>;
}

/** Which calls of the other side hold a good part of the same work. */
function neighbours(left: ReadonlyMap<string, Call>, right: ReadonlyMap<string, Call>, works: Works): Near {
  const holders = new Map<string, string[]>();
  for (const id of right.keys()) for (const token of works.after.get(id) ?? []) push(holders, token, id);
  const near = { before: new Map<string, string[]>(), after: new Map<string, string[]>() };
  for (const id of left.keys()) {
    const own = [...(works.before.get(id) ?? [])];
    const shared = new Map<string, number>();
    for (const other of own.flatMap((token) => holders.get(token) ?? [])) shared.set(other, (shared.get(other) ?? 0) + 1);
    for (const [other, number] of shared) {
      if (number < OVERLAP * Math.min(own.length, works.after.get(other)?.size ?? 0)) continue;
      push(near.before, id, other);
      push(near.after, other, id);
    }
  }
  return near;
}

/** Calls that share work, directly or through others. */
function groups(left: ReadonlyMap<string, Call>, right: ReadonlyMap<string, Call>, works: Works): { before: Call[]; after: Call[] }[] {
  const near = neighbours(left, right, works);
  const seen = new Set<string>();
  const out = [];
  for (const id of left.keys()) {
    if (seen.has(id)) continue;
    const [before, after] = [new Set([id]), new Set<string>()];
    // A Set visits what is added while it is walked.
    for (const each of before) {
      seen.add(each);
      const others = near.before.get(each) ?? [];
      for (const other of others) after.add(other);
      for (const back of others.flatMap((other) => near.after.get(other) ?? [])) before.add(back);
    }
    out.push({ before: held(before, left), after: held(after, right) });
  }
  const alone = [...right.keys()].filter((id) => !near.after.has(id));
  return [...out, ...alone.map((id) => ({ before: [], after: held([id], right) }))];
}

function held(ids: Iterable<string>, calls: ReadonlyMap<string, Call>): Call[] {
  const wanted = new Set(ids);
  return [...calls.values()].filter((call) => wanted.has(call.id));
}

function fateOf(before: number, after: number): Fate {
  if (!before) return 'added';
  if (!after) return 'removed';
  if (before === 1) return after === 1 ? 'changed' : 'split';
  return after === 1 ? 'merged' : 'regrouped';
}

/** In the order of what runs after, each removed call where it ran before. */
function inOrder(pairs: Pair[], after: Unpacked): Pair[] {
  const place = new Map(callsOf(after).map((call, at) => [call.id, at]));
  let last = -1;
  const keys = new Map<Pair, number>();
  for (const pair of pairs) if (pair.after.length) keys.set(pair, Math.min(...pair.after.map((call) => place.get(call.id) ?? 0)));
  for (const pair of pairs) {
    last = keys.get(pair) ?? last;
    if (!keys.has(pair)) keys.set(pair, last + 0.5);
  }
  return [...pairs].sort((a, b) => (keys.get(a) ?? 0) - (keys.get(b) ?? 0));
}

/** The text of a kernel as it was printed, if it has one. */
export function sourceOf(data: Unpacked, id: string): { language: string; text: string } | null {
  const [language, text] = Object.entries(data.record.kernels.find((kernel) => kernel.id === id)?.sources ?? {})[0] ?? [];
  return language !== undefined && text !== undefined ? { language, text } : null;
}

function alikeCode(before: Unpacked, a: Call, after: Unpacked, b: Call): boolean {
  const [left, right] = [sourceOf(before, a.id), sourceOf(after, b.id)];
  if (!left || !right) return left === right && a.fate === b.fate && a.name === b.name;
  return left.language === right.language && bare(left.text, a) === bare(right.text, b);
}

/** Code without the kernel's number and the lines of the cell that it came from. */
function bare(text: string, call: Call): string {
  const own = `${call.id.split('.').pop()}_${call.name}`;
  return text.replaceAll(own, 'kernel').replace(/^\s*(\/\/|#) cell lines? .*$/gm, '').replace(/(\/\/|#) cell lines? [\d, ]+/g, '');
}

// -- decisions -----------------------------------------------------------------------------------

function decisionPairs(before: Compilation, after: Compilation, tokens: Tokens): DecisionPair[] {
  const names = (record: Compilation): Map<string, string> => new Map(nodesOf(record, 'loops').map((node) => [node.id, node.name]));
  const known = { before: names(before), after: names(after) };
  // A backend that records no loops decided nothing that could be compared.
  if (!known.before.size || !known.after.size) return [];
  const key = (each: Decision, token: ReadonlyMap<string, string>): string =>
    [each.kind, token.get(each.producer) ?? each.producer, token.get(each.consumer) ?? each.consumer].join('\n');
  const waiting = new Map<string, Decision[]>();
  for (const each of before.decisions) push(waiting, key(each, tokens.before), each);
  const pair = (a: Decision | null, b: Decision | null): DecisionPair => {
    const [one, name] = b ? [b, known.after] : [a, known.before];
    const called = (id: string): string => name.get(id) ?? id;
    return { before: a, after: b, producer: called(one?.producer ?? ''), consumer: called(one?.consumer ?? '') };
  };
  const out: DecisionPair[] = [];
  for (const each of after.decisions) {
    const found = waiting.get(key(each, tokens.after))?.shift() ?? null;
    if (!found || found.accepted !== each.accepted) out.push(pair(found, each));
  }
  for (const each of [...waiting.values()].flat()) out.push(pair(each, null));
  return out;
}
