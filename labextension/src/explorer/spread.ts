/** Times of one call with their spread, and the difference of two of them in plain words. */
import type { TimingRow } from '../record/generated/scene';
import type { Unpacked } from '../record/read';
import { seconds, times } from './units';

/** Seconds. */
export interface Spread {
  p10: number;
  median: number;
  p90: number;
}

/** The spread of samples in seconds; `null` of none. */
export function spreadOf(samples: readonly number[]): Spread | null {
  const sorted = samples.filter(Number.isFinite).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const [p10, median, p90] = [0.1, 0.5, 0.9].map((q) => quantile(sorted, q)) as [number, number, number];
  return { p10, median, p90 };
}

function quantile(sorted: readonly number[], q: number): number {
  const place = q * (sorted.length - 1);
  const low = sorted[Math.floor(place)] as number;
  const high = sorted[Math.ceil(place)] as number;
  return low + (high - low) * (place - Math.floor(place));
}

/** What one call of a record's own compiled code takes, where that was measured. */
export function ownTime(data: Unpacked): Spread | null {
  return spreadIn(data.scene?.timings.flatMap((timing) => timing.rows).find((each) => each.own && each.counts));
}

/** The spread in a row of the timings. */
export function spreadIn(row: TimingRow | undefined): Spread | null {
  if (!row || row.median === null) return null;
  return { p10: row.p10 ?? row.median, median: row.median, p90: row.p90 ?? row.median };
}

/** `0.98 ms (0.95–1.02 ms)`. */
export function spreadText(spread: Spread): string {
  const [low, high] = [seconds(spread.p10), seconds(spread.p90)];
  const unit = high.slice(high.indexOf(' '));
  return `${seconds(spread.median)} (${low.endsWith(unit) ? low.slice(0, -unit.length) : low}–${high})`;
}

/** `1.12× faster, spreads overlap`. */
export function compared(before: Spread, after: Spread): { text: string; tone: 'good' | 'even' | 'bad' } {
  const ratio = before.median / after.median;
  const overlap = before.p10 <= after.p90 && after.p10 <= before.p90;
  if (Math.abs(Math.log(ratio)) < 0.01) return { text: 'as fast', tone: 'even' };
  const word = ratio > 1 ? `${times(ratio)} faster` : `${times(1 / ratio)} slower`;
  if (overlap) return { text: `${word}, spreads overlap`, tone: 'even' };
  return { text: word, tone: ratio > 1 ? 'good' : 'bad' };
}
