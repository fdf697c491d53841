/** Times of one call with their spread, and the difference of two of them in plain words. */
import type { TimingRow } from '../record/generated/scene';
import type { Unpacked } from '../record/read';
import { seconds, times } from './units';

/** Seconds. Between `low` and `high` lies the median by 99%; null of too few samples. */
export interface Spread {
  p10: number;
  median: number;
  p90: number;
  low: number | null;
  high: number | null;
}

/** Medians nearer to each other than this are the same, and of fewer samples nothing is told: as `record/measured.py` has it. */
const TIE = 0.97;
const LEAST_TOLD = 4;
const SIGMAS = 2.576;

/** The spread of samples in seconds; `null` of none. */
export function spreadOf(samples: readonly number[]): Spread | null {
  const sorted = samples.filter(Number.isFinite).sort((a, b) => a - b);
  if (!sorted.length) return null;
  const [p10, median, p90] = [0.1, 0.5, 0.9].map((q) => quantile(sorted, q)) as [number, number, number];
  const [low, high] = interval(sorted);
  return { p10, median, p90, low, high };
}

/** From the order of the samples alone, as `Measurement.median_interval`. */
function interval(sorted: readonly number[]): [number, number] | [null, null] {
  const many = sorted.length;
  if (many < LEAST_TOLD) return [null, null];
  const away = (SIGMAS / 2) * Math.sqrt(many);
  const low = Math.max(0, Math.floor(many / 2 - away));
  const high = Math.min(many - 1, Math.ceil(many / 2 + away));
  return [sorted[low] as number, sorted[high] as number];
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
  return { p10: row.p10 ?? row.median, median: row.median, p90: row.p90 ?? row.median, low: row.low, high: row.high };
}

/** `0.98 ms (0.95–1.02 ms)`. */
export function spreadText(spread: Spread): string {
  const [low, high] = [seconds(spread.p10), seconds(spread.p90)];
  const unit = high.slice(high.indexOf(' '));
  return `${seconds(spread.median)} (${low.endsWith(unit) ? low.slice(0, -unit.length) : low}–${high})`;
}

/** `1.12× faster`, or that nobody can tell: by the intervals of the medians, as `measured.difference` does. */
export function compared(before: Spread, after: Spread): { text: string; tone: 'good' | 'even' | 'bad' } {
  const ratio = before.median / after.median;
  if (ratio > TIE && ratio < 1 / TIE) return { text: 'as fast', tone: 'even' };
  const word = ratio > 1 ? `${times(ratio)} faster` : `${times(1 / ratio)} slower`;
  if (!apart(before, after)) return { text: `${word}, no clear difference`, tone: 'even' };
  return { text: word, tone: ratio > 1 ? 'good' : 'bad' };
}

function apart(one: Spread, other: Spread): boolean {
  if (one.low === null || one.high === null || other.low === null || other.high === null) return false;
  return one.low > other.high || other.low > one.high;
}
