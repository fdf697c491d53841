/**
 * From what a notebook holds to what the views read: unpacked, validated, and what was left out filled in. The
 * Python side of the same form is nbcompile/record/packed.py.
 */
import type { Compilation } from './generated/record';
import { CLASSES } from './generated/classes';
import type { Scene } from './generated/scene';
import validateRecord from './generated/validate-record.js';
import validateScene from './generated/validate-scene.js';
import { DepthError, harmless, hasTurns } from './texts';

export const SCHEMA = 'nbcompile.compilation/1';
/** Bytes of JSON: a small file must not unfold into more than that. Python has the same bound. */
export const MAX_UNPACKED = 256_000_000;
/** Of the JSON, which takes a hundred times its text in memory where they are short. Python has the same bound. */
const MAX_VALUES = 4_000_000;

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

export interface Unpacked {
  record: Compilation;
  /** The cell's text to the letter, for whoever compares it with the cell: the record's own is marked. */
  source: string;
  /** What other compilers made of the same program. */
  peers: readonly Unpacked[];
  scene: Scene | null;
  /** Why there is no scene; empty if there is one. */
  lacking: string;
}

type Row = Record<string, unknown>;

/** Reads a payload, or a record alone. Rejects with a RecordError, whose message says what is wrong with it. */
export async function read(payload: unknown): Promise<Unpacked> {
  let data = known(payload);
  if ('deflate' in data) data = known(parsed(await inflate(String(data['deflate']))));
  const [source, sources] = [sourceOf(data), sourcesOf(data)];
  data = made(data, source);
  if (!validateRecord(data)) throw new RecordError(`This record is damaged: ${problem(validateRecord.errors)}.`);
  const peers = (data['peers'] ?? []) as Row[];
  return { ...alone(data), source, peers: peers.map((peer, at) => ({ ...alone(peer), source: sources[at] ?? '', peers: [] })) };
}

/** A record without its peers, and its scene. */
function alone({ view, ...data }: Row): Omit<Unpacked, 'peers' | 'source'> {
  return { record: filled('Compilation', { ...data, peers: [] }) as unknown as Compilation, ...scene(view) };
}

/** Of each peer, where there are any: what is damaged is told later. */
function sourcesOf({ peers }: Row): string[] {
  return Array.isArray(peers) ? peers.map((peer) => sourceOf((peer ?? {}) as Row)) : [];
}

function sourceOf(data: Row): string {
  const cell = data['cell'] as Row | null | undefined;
  return typeof cell?.['source'] === 'string' ? cell['source'] : '';
}

/** A rewrite goes into the cell to the letter only where the cell itself has what would be marked in it. */
function made(data: Row, source: string): Row {
  try {
    return harmless(data, new Set(hasTurns(source) ? ['after'] : [])) as Row;
  } catch (error) {
    if (error instanceof DepthError) throw new RecordError(`This record is damaged: ${error.message}.`);
    throw error;
  }
}

/** A payload whose schema this explorer reads. */
function known(payload: unknown): Row {
  if (payload === null || typeof payload !== 'object' || Array.isArray(payload)) {
    throw new RecordError('This is not an nbcompile record.');
  }
  const data = payload as Row;
  const schema = data['schema'];
  const version = typeof schema === 'string' && /^nbcompile\.compilation\/(\d+)$/.exec(schema)?.[1];
  if (!version) throw new RecordError('This is not an nbcompile record: it has no nbcompile schema line.');
  if (Number(version) > Number(SCHEMA.split('/')[1])) {
    throw new RecordError(`This record says ${String(schema).slice(0, 60)}; this explorer reads ${SCHEMA}.`, 'Upgrade nbcompile.');
  }
  return data;
}

function parsed(text: string): unknown {
  let values = 0;
  for (let at = text.indexOf(','); at >= 0; at = text.indexOf(',', at + 1)) {
    if (++values > MAX_VALUES) throw new RecordError(`This record is too large to be shown: it has more than ${MAX_VALUES / 1e6} million values.`, 'Its text and HTML forms show it.');
  }
  try {
    return JSON.parse(text);
  } catch {
    throw new RecordError('This record is damaged: what it unpacks to is not JSON.');
  }
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
  if (kind === 'Graph' && !out['text']) out['text'] = lines(out['nodes'] as Row[]);
  if (kind === 'DrawnGroup' && out['first']) countedFromNought(out);
  return out;
}

/** The refs of nodes in a group as places in the graph's list: a payload has them from the group's first. */
function countedFromNought(group: Row): void {
  const [first, rows, edges] = [Number(group['first']), group['rows'] as number[][], group['edges'] as number[][]];
  group['rows'] = rows.map((row) => row.map((each, n) => (n % 3 === 0 && each >= 0 ? each + first : each)));
  group['edges'] = edges.map(([value = 0, ...rest]) => [value + first, ...rest]);
  group['first'] = 0;
}

/** What a graph prints where its record does not say: the lines of its nodes. */
function lines(nodes: Row[]): string {
  return nodes.map(({ text }) => String(text)).filter(Boolean).join('\n');
}

function filledIn(kind: string, value: unknown): unknown {
  if (Array.isArray(value)) return value.map((each) => filledIn(kind, each) as unknown);
  return value !== null && typeof value === 'object' ? filled(kind, value as Row) : value;
}

/** The text in zlib's format in base64. Rejects with a RecordError if it is damaged, or longer than `most` bytes. */
export async function inflate(base64: string, most = MAX_UNPACKED): Promise<string> {
  if (typeof DecompressionStream === 'undefined') {
    throw new RecordError('This browser cannot unpack records.', 'Open it in a browser of 2023 or later.');
  }
  try {
    const packed = atob(base64);
    const bytes = new Uint8Array(packed.length);
    for (let place = 0; place < packed.length; place++) bytes[place] = packed.charCodeAt(place);
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream('deflate')).getReader();
    const decoder = new TextDecoder();
    let [text, size] = ['', 0];
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return text + decoder.decode();
      size += value.length;
      if (size > most) {
        await reader.cancel();
        throw new RecordError(`This record is too large to be shown: it unpacks to more than ${most / 1e6} MB.`, 'Its text and HTML forms show it.');
      }
      text += decoder.decode(value, { stream: true });
    }
  } catch (error) {
    if (error instanceof RecordError) throw error;
    throw new RecordError('This record is damaged: it cannot be unpacked.');
  }
}
