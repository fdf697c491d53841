/** The lines of a kernel's text that are worth reading, as nbcompile/view/facts/kernel_code.py found them. */
import type { KernelCode, Text } from '../../record/generated/scene';
import { inflate, RecordError, type Source } from '../../record/unpack';

export interface Listing {
  text: string;
  /** For each line, from 0, the line of the kernel's first source that it was made for; 0: none. */
  made: readonly number[];
}

/** A text as it is shown. Throws RecordError for a damaged one. */
export async function listingOf(source: Source, about: Text | undefined): Promise<Listing> {
  const text = await inflate(source);
  if (!about?.rows) return { text: text.trimEnd(), made: [] };
  const lines = text.split('\n');
  const [skipped, made, cuts] = rowsOf(await inflate({ deflate: about.rows }));
  let at = -1;
  const shown = skipped.map((skip, place) => {
    at += skip + 1;
    return without(lines[at] ?? '', cuts[place] ?? []);
  });
  return { text: shown.join('\n'), made };
}

function rowsOf(text: string): [number[], number[], number[][]] {
  let rows: unknown = null;
  try {
    rows = JSON.parse(text);
  } catch {
    // Told below.
  }
  if (!Array.isArray(rows)) throw new RecordError('This listing is damaged.');
  const [skipped, made, cuts] = rows as unknown[];
  const cutNumbers = Array.isArray(cuts) && cuts.every(areNumbers);
  if (!areNumbers(skipped) || !areNumbers(made) || !cutNumbers) throw new RecordError('This listing is damaged.');
  return [skipped, made, cuts as number[][]];
}

function areNumbers(value: unknown): value is number[] {
  return Array.isArray(value) && value.every((each) => Number.isInteger(each) && each >= 0);
}

/** A line without some of its columns: starts and ends in turn. */
function without(line: string, cuts: readonly number[]): string {
  let [kept, from] = ['', 0];
  for (let place = 0; place + 1 < cuts.length; place += 2) {
    kept += line.slice(from, cuts[place]);
    from = cuts[place + 1] as number;
  }
  return (kept + line.slice(from)).trimEnd();
}

/** The languages of a kernel's texts, the one it was printed as first, with what the scene says of them. */
export function textsOf(sources: Record<string, Source>, code: KernelCode | undefined): Text[] {
  const known = new Map((code?.texts ?? []).map((text) => [text.language, text]));
  const order = [...known.keys(), ...Object.keys(sources).filter((name) => !known.has(name))];
  return order
    .filter((name) => name in sources)
    .map((name) => known.get(name) ?? { language: name, title: name, about: '', left_out: '', rows: '' });
}
