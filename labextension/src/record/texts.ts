/**
 * What parsed JSON becomes before anything looks at it: the texts of a stranger without what turns their direction, the
 * objects without what every object has. Python marks texts alike (printable in nbcompile/units.py).
 */

/** Of values in values: a record has a dozen, and its options 64 more in Python's bound. */
const MAX_DEPTH = 80;
const TURNS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/;
const ALL_TURNS = new RegExp(TURNS, 'g');

/** Whether something in a text turns the direction of writing, so that it may read otherwise than it runs. */
export function hasTurns(text: string): boolean {
  return TURNS.test(text);
}

/** A text with what turns its direction written out, `‹U+202E›`. */
export function marked(text: string): string {
  if (!TURNS.test(text)) return text;
  return text.replace(ALL_TURNS, (each) => `‹U+${each.charCodeAt(0).toString(16).toUpperCase().padStart(4, '0')}›`);
}

export class DepthError extends Error {}

/**
 * A copy: every text {@link marked}, but for the fields in `exact`; every object without a prototype, so that a key is
 * there only if the record has it. Throws a DepthError where values are too deep in each other to be walked.
 */
export function harmless(value: unknown, exact: ReadonlySet<string> = new Set(), depth = 0): unknown {
  if (typeof value === 'string') return marked(value);
  if (value === null || typeof value !== 'object') return value;
  if (depth > MAX_DEPTH) throw new DepthError(`values are more than ${MAX_DEPTH} deep in each other`);
  if (Array.isArray(value)) return value.map((each) => harmless(each, exact, depth + 1));
  const out = Object.create(null) as Record<string, unknown>;
  for (const [key, each] of Object.entries(value)) {
    out[marked(key)] = exact.has(key) && typeof each === 'string' ? each : harmless(each, exact, depth + 1);
  }
  return out;
}
