/** The magic line of a cell's source, read and changed as text. */

const MAGIC = /^[ \t]*%%compile(?=\s|$)[^\n]*/m;
const OTHER = /^(?:[ \t]*%%[^\n]*\n|[ \t]*\n)*/;

/** The line of `%%compile`, if the cell has one above its code. */
export function magicLine(source: string): string | null {
  const found = MAGIC.exec(source);
  // Only other cell magics and empty lines may stand above it.
  return found && OTHER.exec(source.slice(0, found.index))?.[0].length === found.index ? found[0] : null;
}

/** The source with `%%compile` above its code, below other cell magics, as it must be to be seen. */
export function withMagic(source: string): string {
  if (magicLine(source) !== null) return source;
  const above = /%%/.test(source) ? (OTHER.exec(source)?.[0] ?? '') : '';
  return `${above}%%compile\n${source.slice(above.length)}`;
}

/** What `--compare` names. */
export function compared(line: string): string[] {
  return (/\s--compare(?:\s+|=)(\S+)/.exec(line)?.[1] ?? '').split(',').filter(Boolean);
}

/** The source compared with these: `--compare` set anew, and nothing that forbids to time. */
export function withCompare(source: string, names: readonly string[]): string {
  const whole = withMagic(source);
  const line = magicLine(whole) ?? '';
  const rest = line.replace(/\s--compare(?:\s+|=)\S+/g, '').replace(/\s--no-bench(?=\s|$)/g, '');
  return whole.replace(line, () => `${rest.trimEnd()} --compare ${names.join(',')}`);
}

/** The source with another `%%compile` line, if it has one and the new one is no more than such a line. */
export function withLine(source: string, line: string): string {
  const known = magicLine(source);
  if (known === null || !/^%%compile(?: [^\n\r]*)?$/.test(line)) return source;
  return source.replace(known, () => line);
}
