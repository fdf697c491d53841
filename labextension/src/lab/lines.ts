/** What the editor of a cell marks: what became of each of its lines, in words. Read from a record, no DOM. */
import type { Call, SceneLine } from '../record/generated/scene';
import { read, type Unpacked } from '../record/read';
import { percent, seconds } from '../explorer/units';

export interface LineMark {
  /** From 1, the magic line counts. */
  line: number;
  fate: Exclude<SceneLine['fate'], 'python' | 'unrun' | 'compiled'>;
  /** One line of text. */
  summary: string;
  /** What serves the line, the heaviest first. */
  calls: { label: string; fate: string; text: string }[];
  /** Why the graph breaks here or an op ran by torch, and what to do about it. */
  reasons: { text: string; hint: string }[];
}

export interface Marks {
  record: string;
  /** The cell as it was compiled. */
  source: string;
  lines: LineMark[];
}

const WORDS: Record<LineMark['fate'], string> = {
  fused: 'in generated kernels',
  library: 'a library call',
  fallback: 'runs by torch: no lowering',
  break: 'the graph breaks here',
  captured: 'captured',
  eager: 'ran eagerly',
};
const known = new WeakMap<object, Promise<Marks | null>>();

/** The marks of a payload; `null` if it cannot be read or has no cell. */
export async function marksOf(payload: unknown): Promise<Marks | null> {
  if (payload === null || typeof payload !== 'object') return null;
  let marks = known.get(payload);
  if (marks === undefined) {
    // Of one that cannot be read the explorer says why.
    marks = read(payload).then(marksIn, () => null);
    known.set(payload, marks);
  }
  return marks;
}

function marksIn({ record, scene, source }: Unpacked): Marks | null {
  if (!record.cell || !scene) return null;
  const calls = new Map(scene.calls.map((call) => [call.id, call]));
  const notes = new Map(record.graphs.flatMap((graph) => graph.nodes.map((node) => [node.id, node.note] as const)));
  const lines = scene.lines.filter(marked).map((line): LineMark => {
    const here = line.calls.flatMap((id) => calls.get(id) ?? []).sort((a, b) => b.share - a.share);
    const broken = record.breaks.filter((each) => each.spans.some((span) => !span.file && span.line === line.number));
    const fallbacks = here.filter((call) => call.fate === 'fallback');
    const share = line.share > 0 ? ` · ${percent(line.share)} of the bytes` : '';
    return {
      line: line.number,
      fate: line.fate,
      summary: `line ${line.number}: ${WORDS[line.fate]}${share}`,
      calls: here.map((call) => ({ label: call.label, fate: call.fate, text: told(call) })),
      reasons: [
        ...broken.map((each) => ({ text: each.reason, hint: each.hint })),
        { text: line.why, hint: '' },
        ...fallbacks.map((call) => ({ text: notes.get(call.id) ?? '', hint: '' })),
      ].filter((each, place, all) => each.text && all.findIndex((other) => other.text === each.text) === place),
    };
  });
  return { record: record.id, source, lines };
}

/** Whether there is something to see at a line: not where there was nothing to compile. */
function marked(line: SceneLine): line is SceneLine & { fate: LineMark['fate'] } {
  return !['python', 'unrun', 'compiled'].includes(line.fate);
}

function told(call: Call): string {
  const time = call.seconds ?? call.predicted;
  const figures = [
    call.share > 0 ? percent(call.share) : '',
    time === null ? '' : `${call.seconds === null ? 'about ' : ''}${seconds(time)}`,
  ];
  return [call.name, ...figures.filter(Boolean)].join(' · ');
}
