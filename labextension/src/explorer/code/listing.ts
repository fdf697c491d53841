/** The lines of a kernel's text that are worth reading, as nbcompile/view/facts/kernel_code.py found them. */
import type { KernelCode, Text } from '../../record/generated/scene';

export interface Listing {
  text: string;
  /** For each line, from 0, the line of the kernel's first source that it was made for; 0: none. */
  made: readonly number[];
}

/** A text as it is shown. */
export function listingOf(source: string, about: Text | undefined): Listing {
  if (!about?.skipped.length) return { text: source.trimEnd(), made: [] };
  const lines = source.split('\n');
  let at = -1;
  const shown = about.skipped.map((skip, place) => {
    at += skip + 1;
    return without(lines[at] ?? '', about.cuts[place] ?? []);
  });
  return { text: shown.join('\n'), made: about.made };
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
export function textsOf(sources: Record<string, string>, code: KernelCode | undefined): Text[] {
  const known = new Map((code?.texts ?? []).map((text) => [text.language, text]));
  const order = [...known.keys(), ...Object.keys(sources).filter((name) => !known.has(name))];
  return order
    .filter((name) => name in sources)
    .map((name) => known.get(name) ?? { language: name, title: name, about: '', left_out: '', skipped: [], made: [], cuts: [] });
}
