/** Where the ticks of an axis stand, worded by our units and not by the chart library's. */
import { seconds } from '../units';

export interface Ticks {
  tickmode: 'array';
  tickvals: number[];
  ticktext: string[];
}

/** Multiples of 1, 2 or 5 times a power of ten from `low` to `high`, about `wanted` of them. */
export function steps(low: number, high: number, wanted: number): number[] {
  const raw = (high - low) / Math.max(1, wanted);
  if (!(raw > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = ([1, 2, 5].find((each) => each * power >= raw * 0.999) ?? 10) * power;
  const out: number[] = [];
  for (let place = Math.ceil(low / step - 1e-9); place * step <= high * (1 + 1e-9); place++) out.push(place * step + 0);
  return out;
}

export function timeTicks(low: number, high: number, wanted: number): Ticks {
  const tickvals = steps(low, high, wanted);
  return { tickmode: 'array', tickvals, ticktext: tickvals.map(seconds) };
}

export function countTicks(high: number, wanted: number): Ticks {
  const tickvals = steps(0, high, wanted);
  return { tickmode: 'array', tickvals, ticktext: tickvals.map((value) => value.toLocaleString('en')) };
}
