/** The charts that hold contestants against each other: bars, samples, and when a compile has paid for itself. */
import type { Data, Layout } from 'plotly.js-basic-dist-min';
import type { TimingRow } from '../../record/generated/scene';
import { count, seconds, times } from '../units';
import { axis, plain, type Draw } from './Chart';
import type { Palette } from './palette';
import { countTicks, timeTicks } from './scales';

const CHARACTER = 6.1;
/** Samples shown of one contestant: more would only cover each other. */
const MAX_SAMPLES = 400;

/** A row that may be shown as a time: its compiled code ran, or it is eager. */
export interface Timed extends TimingRow {
  median: number;
}

/** More seconds, or calls, than any chart has an axis for: a record may say anything. */
const MOST = 1e12;

/** Rows whose numbers a chart can place; what it cannot is as if it had not been measured (tables tell it). */
export function placed(rows: readonly TimingRow[]): TimingRow[] {
  const known = (value: number | null): number | null => (value !== null && value >= 0 && value < MOST ? value : null);
  return rows.map((row) => ({
    ...row, p10: known(row.p10), median: known(row.median), p90: known(row.p90), cold: known(row.cold), break_even: known(row.break_even),
  }));
}

export function counted(rows: readonly TimingRow[]): Timed[] {
  return rows.filter((row): row is Timed => row.counts && row.median !== null && row.median > 0);
}

export function contestant(row: TimingRow): string {
  return row.mode && row.mode !== 'default' ? `${row.contestant} ${row.mode}` : row.contestant;
}

export function colour(row: TimingRow, colours: Palette): string {
  if (row.own) return colours.fused;
  return row.contestant === 'eager' ? colours.eager : colours.library;
}

/** One sentence of what the bars say. */
export function inWords(rows: readonly TimingRow[]): string {
  return rows
    .map((row) => {
      if (!row.counts) return `${contestant(row)} did not run compiled: ${row.reason}`;
      if (row.median === null) return `${contestant(row)} was not timed`;
      return `${contestant(row)} ${seconds(row.median)}${row.ratio === null || row.contestant === 'eager' ? '' : `, ${times(row.ratio)} the speed of eager`}`;
    })
    .join('; ');
}

/** A bar a contestant, its spread from p10 to p90, and its time in words. */
export function bars(rows: readonly TimingRow[]): Draw {
  return (colours, width) => {
    const timed = counted(rows);
    const labels = rows.map(contestant);
    const wide = width > 460;
    const said = rows.map((row) => barText(row, wide));
    // A spread of many times the median, of a busy machine, must not leave the bars a sliver.
    const most = Math.max(1e-9, ...timed.map((row) => row.median));
    const high = Math.min(2 * most, Math.max(most, ...timed.map((row) => row.p90 ?? 0)));
    const longest = Math.max(...rows.map((row, place) => (row.counts ? (said[place] ?? '').length : 0)));
    const data: Partial<Data> = {
      type: 'bar', orientation: 'h', hoverinfo: 'text', width: 0.5,
      x: timed.map((row) => row.median),
      y: timed.map((row) => rows.indexOf(row)),
      marker: { color: timed.map((row) => colour(row, colours)) },
      hovertext: timed.map((row) => plain(`${contestant(row)}: median ${seconds(row.median)}, p10 ${seconds(row.p10)}, p90 ${seconds(row.p90)}`)),
      error_x: {
        type: 'data', symmetric: false, thickness: 1.3, width: 5, color: colours.ink,
        array: timed.map((row) => (row.p90 ?? row.median) - row.median),
        arrayminus: timed.map((row) => row.median - (row.p10 ?? row.median)),
      },
    };
    return {
      data: [data],
      layout: {
        margin: { l: margin(labels), r: Math.min(0.5 * width, longest * CHARACTER + 14), t: 2, b: 4 },
        xaxis: { ...axis(colours), range: [0, high], showticklabels: false, showline: false },
        yaxis: names(labels, colours),
        annotations: rows.map((row, place) => ({
          x: row.counts ? Math.min(high, Math.max(row.median ?? 0, row.p90 ?? 0)) : 0, y: place, xanchor: 'left', xshift: 6,
          align: 'left', showarrow: false, text: plain(said[place] ?? ''),
          font: { color: row.counts ? colours.ink : colours.break },
        })),
      },
    };
  };
}

function barText(row: TimingRow, wide: boolean): string {
  if (!row.counts) return 'did not run compiled';
  if (row.median === null) return 'not timed';
  const parts = [seconds(row.median)];
  if (row.ratio !== null && row.contestant !== 'eager') parts.push(times(row.ratio));
  if (wide && row.cold !== null) parts.push(`compile ${seconds(row.cold)}`);
  return parts.join(' · ');
}

/** Each sample a mark, so that a mean that hides two speeds, or a drift, is seen. */
export function distribution(rows: readonly TimingRow[], samples: readonly (readonly number[])[]): Draw {
  return (colours, width) => {
    const labels = rows.map(contestant);
    const { low, high } = range(samples);
    const data = rows.map((row, place): Partial<Data> => {
      const shown = thinned(samples[place] ?? []);
      return {
        type: 'scatter', mode: 'markers', hoverinfo: 'text', cliponaxis: false,
        x: shown.map((value) => Math.min(value, high)),
        y: shown.map((_, each) => place + 0.62 * (((each * 0.618034) % 1) - 0.5)),
        hovertext: shown.map((value) => plain(`${labels[place]}: ${seconds(value)}`)),
        marker: { size: 4, opacity: 0.55, color: row.contestant === 'eager' ? colours.quiet : colour(row, colours), symbol: shown.map((value) => (value > high ? 'triangle-right' : 'circle')) },
      };
    });
    const medians = rows.flatMap((row, place) => (row.median === null ? [] : [line(row.median, place, colours)]));
    return {
      data,
      layout: {
        margin: { l: margin(labels), r: 14, t: 2, b: 26 }, shapes: medians,
        xaxis: { ...axis(colours), range: [low, high], showgrid: true, ...timeTicks(low, high, width / 110) },
        yaxis: names(labels, colours),
      },
    };
  };
}

function line(median: number, place: number, colours: Palette): Partial<Layout['shapes'][number]> {
  return { type: 'line', x0: median, x1: median, y0: place - 0.36, y1: place + 0.36, line: { color: colours.ink, width: 1.5 } };
}

/** What most samples lie in: a few that the machine was busy in must not press all others together. */
export function range(samples: readonly (readonly number[])[]): { low: number; high: number } {
  const sorted = samples.filter((each) => each.length).map((each) => [...each].sort((a, b) => a - b));
  const at = (each: readonly number[], share: number): number => each[Math.round(share * (each.length - 1))] ?? 0;
  const low = Math.min(...sorted.map((each) => at(each, 0)));
  const high = Math.max(...sorted.map((each) => Math.min(at(each, 1), at(each, 0.9) + 2 * (at(each, 0.9) - at(each, 0.1)))));
  return sorted.length && high > low ? { low: low - 0.04 * (high - low), high } : { low: 0, high: Math.max(1e-9, high, 0) };
}

function thinned(samples: readonly number[]): number[] {
  const step = Math.max(1, samples.length / MAX_SAMPLES);
  return Array.from({ length: Math.min(samples.length, MAX_SAMPLES) }, (_, place) => samples[Math.floor(place * step)] ?? 0);
}

/** Contestants that cost a compile, with what it cost. */
export function payers(rows: readonly TimingRow[]): (Timed & { cold: number })[] {
  return counted(rows).filter((row): row is Timed & { cold: number } => row.contestant !== 'eager' && row.cold !== null);
}

/** Calls until the farthest crossing that is shown; crossings far beyond the first are left out of sight. */
export function reach(rows: readonly TimingRow[]): number {
  const eager = rows.find((row) => row.contestant === 'eager')?.median ?? 0;
  const paid = payers(rows).flatMap((row) => (row.break_even === null ? [] : [row.break_even]));
  const soonest = paid.length ? Math.min(...paid) : 0;
  const near = paid.filter((calls) => calls <= 40 * Math.max(1, soonest));
  if (near.length) return Math.ceil(1.35 * Math.max(1, ...near));
  const dearest = Math.max(0, ...payers(rows).map((row) => row.cold));
  return eager > 0 && dearest > 0 ? Math.ceil((2 * dearest) / eager) : 100;
}

export function paysInWords(rows: readonly TimingRow[]): string {
  const said = payers(rows).map((row) => {
    const after = row.break_even === null ? 'never pays off' : `pays off after ${count(row.break_even, 'call')}`;
    return `${contestant(row)}, compiled in ${seconds(row.cold)}, ${after}`;
  });
  return said.join('; ');
}

/**
 * How far each contestant is behind eager or ahead of it, its compile counted, by the number of calls. Told as
 * the difference, for the totals themselves lie on one another. A ring where it overtakes eager.
 */
export function breakEven(rows: readonly TimingRow[]): Draw {
  return (colours, width) => {
    const calls = reach(rows);
    const eager = counted(rows).find((row) => row.contestant === 'eager')?.median ?? 0;
    const paying = payers(rows);
    const ahead = (row: Timed & { cold: number }, at: number): number => at * (eager - row.median) - row.cold;
    const every = paying.flatMap((row) => [ahead(row, 0), ahead(row, calls)]);
    const [low, high] = [Math.min(0, ...every), Math.max(0, ...every)];
    const room = 0.08 * (high - low);
    const crossings = paying.filter((row) => row.break_even !== null && row.break_even <= calls);
    const lines = paying.map((row): Partial<Data> => {
      const at = Array.from({ length: 25 }, (_, place) => (calls * place) / 24);
      return {
        type: 'scatter', mode: 'lines', hoverinfo: 'text', x: at, y: at.map((each) => ahead(row, each)),
        hovertext: at.map((each) => plain(standing(row, Math.round(each), ahead(row, each), eager))),
        line: { color: colour(row, colours), width: row.own ? 2.4 : 1.8, dash: row.own ? 'solid' : 'dash' },
      };
    });
    const rings: Partial<Data> = {
      type: 'scatter', mode: 'markers', hoverinfo: 'text', x: crossings.map((row) => row.break_even), y: crossings.map(() => 0),
      hovertext: crossings.map((row) => plain(`${contestant(row)} pays off after ${count(row.break_even ?? 0, 'call')}`)),
      marker: { size: 10, color: colours.bg, line: { width: 2, color: crossings.map((row) => colour(row, colours)) } },
    };
    const marks = crossings.map((row) => ({
      x: row.break_even ?? 0, y: 0, text: plain(count(row.break_even ?? 0, 'call')), showarrow: false, yshift: 14,
      xanchor: 'right' as const, xshift: 2, font: { color: colours.ink },
    }));
    // Lines are named where they end, below each other where they end together.
    const ends = [...paying.map((row) => ahead(row, calls)), 0];
    const labels = [...paying.map(contestant), 'eager'];
    const tones = [...paying.map((row) => colour(row, colours)), colours.quiet];
    const heights = spread(ends.map((end) => (end - low + room) / (high - low + 2 * room)), 0.1);
    const named = labels.map((label, place) => ({
      x: 1, xref: 'paper' as const, y: heights[place] ?? 0, yref: 'paper' as const, yanchor: 'middle' as const,
      text: plain(label), showarrow: false, xanchor: 'left' as const, xshift: 6, font: { color: tones[place] ?? colours.ink },
    }));
    const ticks = timeTicks(low, high, 4);
    return {
      data: [...lines, rings],
      layout: {
        margin: { l: 58, r: margin(labels), t: 6, b: 38 }, annotations: [...marks, ...named],
        shapes: [{ type: 'line', xref: 'paper', x0: 0, x1: 1, y0: 0, y1: 0, layer: 'below', line: { color: colours.quiet, width: 1.4 } }],
        xaxis: { ...axis(colours, 'calls'), range: [0, calls], ...countTicks(calls, width / 110) },
        yaxis: {
          ...axis(colours), range: [low - room, high + room], showgrid: true, ...ticks,
          ticktext: ticks.tickvals.map((value) => `${value > 0 ? '+' : value < 0 ? '−' : ''}${seconds(Math.abs(value))}`),
        },
      },
    };
  };
}

function standing(row: Timed & { cold: number }, calls: number, ahead: number, eager: number): string {
  const spent = `${count(calls, 'call')} in ${seconds(row.cold + calls * row.median)}, eager ${seconds(calls * eager)}`;
  return `${contestant(row)}: ${spent}: ${seconds(Math.abs(ahead))} ${ahead < 0 ? 'behind' : 'ahead'}`;
}

/** Heights of 0 to 1, moved apart by at least `gap`, none above 1. */
export function spread(heights: readonly number[], gap: number): number[] {
  const order = heights.map((height, place) => ({ height, place })).sort((a, b) => b.height - a.height);
  let above = 1 + gap;
  for (const each of order) above = each.height = Math.min(each.height, above - gap);
  return order.sort((a, b) => a.place - b.place).map((each) => each.height);
}

function margin(labels: readonly string[]): number {
  return Math.min(150, Math.max(...labels.map((label) => label.length), 4) * CHARACTER + 14);
}

function names(labels: readonly string[], colours: Palette): Partial<Layout['yaxis']> {
  return {
    ...axis(colours), range: [labels.length - 0.5, -0.5], tickmode: 'array', tickvals: labels.map((_, place) => place),
    ticktext: labels.map((label) => plain(label.length > 22 ? `${label.slice(0, 21)}…` : label)), color: colours.ink,
  };
}
