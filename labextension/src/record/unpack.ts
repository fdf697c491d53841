/**
 * From what a notebook holds to what the views read: the tables of the packed form unfolded, and what was
 * left out filled in. The Python side of the same format is nbcompile/record/packing.py.
 */
import type { Compilation, Node, Span } from './generated/record';
import { CLASSES } from './generated/classes';
import type { Scene } from './generated/scene';
import validateRecord from './generated/validate-compilation.js';
import validateScene from './generated/validate-scene.js';

export const SCHEMA = 'nbcompile.compilation/1';
/** Spans of one record, written out: a small file must not unfold into a large one. */
const MAX_SPANS = 2_000_000;
/** Bytes of one deflated text, written out. */
const MAX_INFLATED = 64_000_000;

/** A payload that cannot be shown; `advice` says what the reader can do. */
export class RecordError extends Error {
  constructor(
    message: string,
    readonly advice: string = 'Run the cell again to make a new record.',
  ) {
    super(message);
    this.name = 'RecordError';
  }
}

/** A text of a kernel that may still be packed: see {@link inflate}. */
export type Source = string | { deflate: string };

export interface Unpacked {
  record: Compilation;
  /** Sources of each kernel by language, packed ones as they came: most are never looked at. */
  sources: Map<string, Record<string, Source>>;
  /** What other compilers made of the same program. */
  peers: readonly Unpacked[];
  scene: Scene | null;
  /** Why there is no scene; empty if there is one. */
  lacking: string;
}

type Row = Record<string, unknown>;

/** Fields of a peer that are the record's own where they are left out. */
const SHARED = ['cell', 'environment', 'guards', 'breaks', 'recompiles', 'measurements', 'accuracy', 'ceilings'] as const;
const MAX_PEERS = 8;

const TABLES: ReadonlyMap<string, string> = new Map([
  ['tensor', 'tensors'],
  ['operator', 'operators'],
  ['path', 'paths'],
  ['rule', 'rules'],
]);

/** Reads a payload. Throws RecordError, whose message says what is wrong with it. */
export function unpack(payload: unknown): Unpacked {
  const data = checked(payload);
  // Filled once: many nodes share one.
  const stacks = ((data['spans'] ?? []) as Span[][]).map((stack) => filledIn('Span', stack) as Row[]);
  let spent = 0;
  const unfold = (item: Row): Row => {
    const out: Row = {};
    for (const [key, value] of Object.entries(item)) {
      const table = TABLES.get(key);
      if (typeof value !== 'number' || !(table || key === 'spans')) out[key] = value;
      else if (table) Object.assign(out, at((data[table] ?? []) as Row[], value, table));
      else {
        const stack = at(stacks, value, 'spans');
        spent += stack.length;
        if (spent > MAX_SPANS) throw new RecordError('This record has too many spans.');
        out[key] = stack;
      }
    }
    return out;
  };
  const rows = (name: string, each: (row: Row) => Row): Row[] => ((data[name] ?? []) as Row[]).map(each);
  const sources = new Map<string, Record<string, Source>>();
  const whole: Row = { ...data };
  for (const table of ['spans', 'view', ...TABLES.values()]) Reflect.deleteProperty(whole, table);
  whole['graphs'] = rows('graphs', (graph) => unfoldGraph(graph, unfold));
  for (const name of ['decisions', 'guards', 'breaks', 'recompiles']) whole[name] = rows(name, unfold);
  whole['kernels'] = rows('kernels', (kernel) => {
    const held = kernel['sources'] as Record<string, Source>;
    sources.set(kernel['id'] as string, held);
    return { ...kernel, sources: Object.fromEntries(Object.keys(held).map((key) => [key, ''])) };
  });
  const peers = (whole['peers'] ?? []) as Row[];
  if (peers.length > MAX_PEERS) throw new RecordError('This record has too many peers.');
  whole['peers'] = [];
  const record = filled('Compilation', whole) as unknown as Compilation;
  return { record, sources, peers: peers.map((peer) => wholePeer(record, peer)), ...scene(data['view']) };
}

/** A peer with what it has in common with `record`, which its packed form leaves out. */
function wholePeer(record: Compilation, packed: Row): Unpacked {
  const graphs = (Array.isArray(packed['graphs']) ? packed['graphs'] : []) as unknown[];
  const data = unpack({ ...packed, graphs: graphs.filter((each) => typeof each !== 'string'), peers: [] });
  const own = data.record.graphs.values();
  const all = graphs.map((each) => {
    const found = typeof each === 'string' ? record.graphs.find((graph) => graph.id === each) : own.next().value;
    if (!found) throw new RecordError(`This record is damaged: there is no graph ${String(each)}.`);
    return found;
  });
  const same = Object.fromEntries(SHARED.filter((name) => !(name in packed)).map((name) => [name, record[name]]));
  return { ...data, record: { ...data.record, ...same, graphs: all } };
}

function checked(payload: unknown): Row {
  if (payload === null || typeof payload !== 'object' || Array.isArray(payload)) {
    throw new RecordError('This is not an nbcompile record.');
  }
  const data = payload as Row;
  const schema = data['schema'];
  const version = typeof schema === 'string' && /^nbcompile\.compilation\/(\d+)$/.exec(schema)?.[1];
  if (!version) throw new RecordError('This is not an nbcompile record: it has no nbcompile schema line.');
  if (Number(version) > Number(SCHEMA.split('/')[1])) {
    throw new RecordError(`This record says ${String(schema)}; this explorer reads ${SCHEMA}.`, 'Upgrade nbcompile.');
  }
  if (!validateRecord(data)) throw new RecordError(`This record is damaged: ${problem(validateRecord.errors)}.`);
  return data;
}

/** What Python worked out for the views, or why there is none. The record itself says enough to go without. */
function scene(view: unknown): { scene: Scene | null; lacking: string } {
  if (view === undefined || view === null) return { scene: null, lacking: 'it holds the compilation alone' };
  if (validateScene(view)) return { scene: filled('Scene', view as Row) as unknown as Scene, lacking: '' };
  return { scene: null, lacking: `what was worked out for it is of another version, or damaged: ${problem(validateScene.errors)}` };
}

function problem(errors: { instancePath: string; message?: string }[] | null | undefined): string {
  const first = errors?.[0];
  return `${first?.instancePath.slice(1).replaceAll('/', '.') || 'record'} ${first?.message ?? 'is not as it should be'}`;
}

function unfoldGraph(graph: Row, unfold: (row: Row) => Row): Row {
  const lines = String(graph['text'] ?? '').split('\n');
  const nodes = (graph['nodes'] ?? []) as Row[];
  return {
    ...graph,
    nodes: nodes.map((node) => {
      const out = unfold(node);
      if (typeof out['text'] === 'number') out['text'] = at(lines, out['text'] - 1, 'text').trim();
      out['inputs'] = ((out['inputs'] ?? []) as (string | number)[]).map((input) =>
        typeof input === 'number' ? (at(nodes, input, 'inputs')['id'] as string) : input,
      );
      return out as unknown as Node;
    }),
  };
}

function at<T>(table: readonly T[], place: number, what: string): T {
  const found = table[place];
  if (found === undefined) throw new RecordError(`This record is damaged: ${what} has no number ${place}.`);
  return found;
}

/** What the fields of each class stand for when left out, and those that hold a class of their own. */
const WHOLE = new Map(Object.entries(CLASSES).map(([kind, fields]) => {
  const all = Object.entries(fields);
  const missing: Row = Object.fromEntries(all.map(([name, field]) => [name, field.missing]));
  const held = all.flatMap(([name, { holds }]) => (holds && holds in CLASSES ? [[name, holds] as const] : []));
  return [kind, { missing, held }];
}));

/** A copy with what was left out at what it stands for, all the way down. */
function filled(kind: string, row: Row): Row {
  const whole = WHOLE.get(kind);
  if (!whole) return row;
  const out: Row = { ...whole.missing, ...row };
  for (const [name, holds] of whole.held) out[name] = filledIn(holds, out[name]);
  return out;
}

function filledIn(kind: string, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((each) => filledIn(kind, each) as unknown);
  return value !== null && typeof value === 'object' ? filled(kind, value as Row) : value;
}

/** The text of a source, inflated if it is packed. Throws RecordError for a damaged or an endless one. */
export async function inflate(source: Source): Promise<string> {
  if (typeof source === 'string') return source;
  try {
    const bytes = Uint8Array.from(atob(source.deflate), (char) => char.charCodeAt(0));
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate')).getReader();
    const decoder = new TextDecoder();
    let [text, size] = ['', 0];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return text + decoder.decode();
      size += value.length;
      if (size > MAX_INFLATED) throw new RecordError('This text is too long to be shown.');
      text += decoder.decode(value, { stream: true });
    }
  } catch (error) {
    if (error instanceof RecordError) throw error;
    throw new RecordError('This text is damaged.');
  }
}
