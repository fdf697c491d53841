/** Numbers as people read them, worded as nbcompile/units.py words them. */

/** Rounded as Python rounds: two views of one number must not differ in its last digit. */
function digits(options: Intl.NumberFormatOptions): Intl.NumberFormat {
  return new Intl.NumberFormat('en', { ...options, roundingMode: 'halfEven' } as Intl.NumberFormatOptions);
}

const three = digits({ maximumSignificantDigits: 3 });
const two = digits({ maximumSignificantDigits: 2 });
const whole = digits({ maximumFractionDigits: 0 });
const tenths = digits({ minimumFractionDigits: 1, maximumFractionDigits: 1 });
const hundredths = digits({ minimumFractionDigits: 2, maximumFractionDigits: 2 });
const BYTES = ['B', 'kB', 'MB', 'GB', 'TB', 'PB'];
const SECONDS: [number, string][] = [
  [1, 's'],
  [1e-3, 'ms'],
  [1e-6, 'µs'],
];
const PREFIXES: [number, string][] = [
  [1e15, 'P'],
  [1e12, 'T'],
  [1e9, 'G'],
  [1e6, 'M'],
  [1e3, 'k'],
];
const DTYPES: ReadonlyMap<string, string> = new Map(Object.entries({
  float32: 'f32', float64: 'f64', float16: 'f16', bfloat16: 'bf16', int64: 'i64', int32: 'i32', int16: 'i16',
  int8: 'i8', uint8: 'u8', complex64: 'c64',
}));

/** A time in seconds: `0.98 ms`; an en dash where it was not measured. */
export function seconds(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value === 0) return '0 s';
  if (Math.abs(value) < 0.5e-9) return '<1 ns';
  for (const [size, unit] of SECONDS) {
    if (Math.abs(value) >= size * 0.9995 || (unit === 's' && Math.abs(value) >= 0.0995)) return `${three.format(value / size)} ${unit}`;
  }
  return `${three.format(value / 1e-9)} ns`;
}

/** A number of bytes in decimal units: `2.1 MB`. */
export function bytes(count: number): string {
  let [value, unit] = [count, 0];
  while (Math.abs(value) >= 999.5 && unit < BYTES.length - 1) [value, unit] = [value / 1000, unit + 1];
  return `${unit ? three.format(value) : whole.format(value)} ${BYTES[unit]}`;
}

/** A number with a prefix and its unit: `66.9 Tflop/s`. */
export function quantity(value: number, unit: string): string {
  const [size, prefix] = PREFIXES.find(([each]) => Math.abs(value) >= each * 0.9995) ?? [1, ''];
  return `${three.format(value / size)} ${prefix}${unit}`;
}

/** A share of 0 to 1: `12%`; `<1%` for a little, so that it does not read as nothing. */
export function percent(share: number): string {
  return share > 0 && share <= 0.005 ? '<1%' : `${whole.format(share * 100)}%`;
}

/** `2.3×`: two significant digits are what a timing supports; near one, two decimals. */
export function times(ratio: number): string {
  if (ratio >= 0.85 && ratio < 1.195) return `${hundredths.format(ratio)}×`;
  return `${(ratio >= 9.95 || ratio < 1 ? two : tenths).format(ratio)}×`;
}

/** `1 graph`, `2 graphs`. */
export function count(number: number, one: string, many = `${one}s`): string {
  return `${number.toLocaleString('en')} ${number === 1 ? one : many}`;
}

/** `f32[16,64,512]`; a symbolic size keeps its name. */
export function shape(dims: readonly (number | string)[] | null, dtype: string | null): string {
  const kind = (dtype ?? '').replace('torch.', '');
  return (DTYPES.get(kind) ?? kind) + (dims ? `[${dims.join(',')}]` : '');
}

/** Numbers of lines, in order: `3`, `3–5`, `2, 7`; the first two of more. */
export function linesLabel(lines: readonly number[]): string {
  const sorted = [...lines].sort((a, b) => a - b);
  const [first, last] = [sorted[0], sorted[sorted.length - 1]];
  if (first === undefined || last === undefined) return '';
  if (sorted.length === 1) return `${first}`;
  if (last - first === sorted.length - 1) return `${first}–${last}`;
  return sorted.length === 2 ? `${first}, ${last}` : `${first}, ${sorted[1]}…`;
}

/** At most `width` characters, cut before the last third: names of one family differ at their end. */
export function clip(text: string, width: number): string {
  if (text.length <= width) return text;
  const tail = Math.floor(width / 3);
  return `${text.slice(0, width - 1 - tail)}…${text.slice(text.length - tail)}`;
}
