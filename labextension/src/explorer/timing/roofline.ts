/**
 * Kernels under what their chip allows, both axes logarithmic: operations a byte across, operations a second
 * up. Kernels without arithmetic stand at the left, as far below the roof as they stay below the bandwidth; what
 * does little but being launched may be far below, and stands on the lower edge.
 */
import type { Data, PlotData } from 'plotly.js-basic-dist-min';
import type { ScenePoint, SceneRoofline } from '../../record/generated/scene';
import { bytes, percent, quantity, seconds } from '../units';
import { axis, LINKED, plain, type Draw } from './Chart';
import type { Palette } from './palette';

/** Decades left of the plot for kernels that compute nothing. */
const NONE = 0.35;
const CHARACTER = 6;

interface Frame {
  x0: number;
  x1: number;
  y0: number;
  y1: number;
  none: boolean;
}

interface Dot {
  point: ScenePoint;
  x: number;
  y: number;
  below: boolean;
}

function height(point: ScenePoint, start: number): number {
  const spent = point.seconds ?? point.limit ?? 0;
  if (!spent) return start;
  return point.flops ? point.flops / spent : start * Math.min(1, (point.limit ?? spent) / spent);
}

/** Half decades around the kernels and the ridge. */
export function frame(roof: SceneRoofline): Frame {
  const ridge = roof.float32_rate / roof.bandwidth;
  const seen = roof.points.flatMap((point) => (point.flops && point.bytes && point.intensity ? [point.intensity] : []));
  const x0 = Math.floor(2 * Math.log10(Math.min(...seen, ridge, 1)) - 0.5) / 2;
  const x1 = Math.ceil(2 * Math.log10(Math.max(...seen, ridge)) + 0.8) / 2;
  const start = roof.bandwidth * 10 ** x0;
  const working = roof.points.filter((point) => point.bound !== 'launch');
  const heights = (working.length ? working : roof.points).filter((point) => point.bytes).map((point) => height(point, start));
  const y0 = Math.floor(2 * Math.log10(Math.min(...heights, start)) - 0.2) / 2;
  const top = Math.max(roof.float32_rate, ...(matrix(roof) ? [roof.matrix_rate] : []));
  return { x0, x1, y0, y1: Math.log10(top) + 0.35, none: roof.points.some((point) => !point.flops) };
}

/** Whether a kernel is above what plain arithmetic allows, so that the matrix units' roof says something. */
function matrix(roof: SceneRoofline): boolean {
  return roof.matrix_rate > roof.float32_rate && roof.points.some((point) => (point.flops_per_second ?? 0) > roof.float32_rate);
}

export function roofline(roof: SceneRoofline, name: (kernel: string) => string): Draw {
  return (colours, width) => {
    const box = frame(roof);
    const dots = roof.points.map((point) => dot(point, roof, box));
    const left = box.x0 - (box.none ? NONE : 0);
    const margin = { l: 58, r: 10, t: 22, b: 38 };
    const pixels = { x: (width - margin.l - margin.r) / (box.x1 - left), y: 240 / (box.y1 - box.y0) };
    const places = labelled(dots, pixels, width - margin.l - margin.r, left);
    const ridge = Math.log10(roof.float32_rate / roof.bandwidth);
    const slope = Math.log10(roof.bandwidth);
    const free = clearest(dots, box.x0, ridge);
    const decades = (from: number, to: number): number[] => {
      const [first, last] = [Math.ceil(from), Math.floor(to)];
      const step = last - first > 8 ? 2 : 1;
      return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, place) => first + place * step);
    };
    const [across, up] = [decades(box.x0, box.x1), decades(box.y0, box.y1)];
    return {
      data: [...roofs(roof, box, colours), ...marks(dots, places, name, colours)],
      layout: {
        margin,
        xaxis: {
          ...axis(colours, 'operations a byte (flop/B)'), range: [left, box.x1], showgrid: true, tickmode: 'array',
          tickvals: [...(box.none ? [box.x0 - NONE / 2] : []), ...across], ticktext: [...(box.none ? ['0'] : []), ...across.map((each) => String(Number((10 ** each).toPrecision(1))))],
        },
        yaxis: { ...axis(colours), range: [box.y0, box.y1], showgrid: true, tickmode: 'array', tickvals: up, ticktext: up.map((each) => quantity(10 ** each, '')) },
        annotations: [
          { x: 0, xref: 'paper', xanchor: 'left', xshift: -50, y: 1, yref: 'paper', yshift: 16, showarrow: false, text: 'operations a second (flop/s)', font: { color: colours.quiet, size: 11 } },
          { x: box.x1, y: Math.log10(roof.float32_rate), xanchor: 'right', yshift: 9, showarrow: false, text: plain(`${quantity(roof.float32_rate, 'flop/s')} float32`) },
          { x: free, y: slope + free, yshift: 11, xshift: -7, showarrow: false, textangle: String((-Math.atan2(pixels.y, pixels.x) * 180) / Math.PI), text: plain(`${bytes(roof.bandwidth)}/s memory`) },
        ],
      },
    };
  };
}

function dot(point: ScenePoint, roof: SceneRoofline, box: Frame): Dot {
  const rate = Math.log10(Math.max(height(point, roof.bandwidth * 10 ** box.x0), 1e-30));
  const x = point.flops && point.intensity ? Math.log10(point.intensity) : box.x0 - NONE / 2;
  return { point, x: point.flops && !point.bytes ? box.x1 : x, y: Math.min(Math.max(rate, box.y0), box.y1), below: rate < box.y0 };
}

function roofs(roof: SceneRoofline, box: Frame, colours: Palette): Partial<Data>[] {
  const at = (x: number, rate: number): number => Math.min(Math.log10(roof.bandwidth) + x, Math.log10(rate));
  const line = (xs: number[], rate: number, dash: 'solid' | 'dash'): Partial<Data> => ({
    type: 'scatter', mode: 'lines', hoverinfo: 'skip', x: xs, y: xs.map((x) => at(x, rate)), line: { color: colours.ink, width: 1.6, dash },
  });
  const ridge = (rate: number): number => Math.log10(rate / roof.bandwidth);
  const out = [line([box.x0, ridge(roof.float32_rate), box.x1], roof.float32_rate, 'solid')];
  if (matrix(roof)) out.push(line([ridge(roof.float32_rate), ridge(roof.matrix_rate), Math.max(box.x1, ridge(roof.matrix_rate))], roof.matrix_rate, 'dash'));
  if (box.none) {
    const y = at(box.x0, roof.float32_rate);
    out.push({ type: 'scatter', mode: 'lines', hoverinfo: 'skip', x: [box.x0 - NONE, box.x0 - 0.08], y: [y, y], line: { color: colours.ink, width: 1.6 } });
  }
  return out;
}

/** Full: measured. Open: where its predicted time puts it. A triangle: lower still. */
function marks(dots: readonly Dot[], places: readonly string[], name: (kernel: string) => string, colours: Palette): Partial<Data>[] {
  return [{
    type: 'scatter', mode: 'text+markers', uid: LINKED, hoverinfo: 'text', cliponaxis: false,
    x: dots.map((each) => each.x), y: dots.map((each) => each.y),
    customdata: dots.map((each) => each.point.kernel),
    text: dots.map((each, place) => (places[place] ? plain(each.point.label) : '')),
    textposition: dots.map((_, place) => places[place] || 'middle right') as unknown as PlotData['textposition'],
    hovertext: dots.map((each) => plain(told(each.point, name(each.point.kernel))).replaceAll('\n', '<br>')),
    marker: {
      size: 9, color: colours.fused, line: { width: 1.8, color: colours.fused },
      symbol: dots.map(({ point, below }) => `${below ? 'triangle-down' : 'circle'}${point.measured ? '' : '-open'}`),
    },
  } as Partial<Data>];
}

function told(point: ScenePoint, name: string): string {
  const words = [point.bytes ? `moves ${bytes(point.bytes)}` : '', point.flops ? `computes ${quantity(point.flops, 'flop')}` : 'no arithmetic'];
  const time = `${point.measured ? 'measured' : 'predicted'} ${seconds(point.seconds)}, limit ${seconds(point.limit)}`;
  const share = point.share === null ? '' : ` (${percent(point.share)} of it reached)`;
  return `${point.label} ${name}\n${words.filter(Boolean).join(', ')}\n${time}${share}\nbound by ${point.bound === 'launch' ? 'launching' : point.bound}`;
}

/** Where each label finds room beside its dot, the longest running first; empty where it finds none. */
function labelled(dots: readonly Dot[], pixels: { x: number; y: number }, right: number, left: number): string[] {
  const taken = dots.map((each) => box((each.x - left) * pixels.x, each.y * pixels.y, 7, 7));
  const out = dots.map(() => '');
  const order = dots.map((_, place) => place).sort((a, b) => (dots[b]?.point.seconds ?? 0) - (dots[a]?.point.seconds ?? 0));
  for (const place of order) {
    const each = dots[place];
    if (!each) continue;
    const [x, y, half] = [(each.x - left) * pixels.x, each.y * pixels.y, (each.point.label.length * CHARACTER) / 2];
    const wanted: [string, Box][] = [
      // Never above or to the left: there is the roof.
      ['middle right', box(x + half + 9, y, half, 6)], ['bottom right', box(x + half + 4, y - 12, half, 6)],
      ['bottom center', box(x, y - 15, half, 6)],
    ];
    const found = wanted.find(([, room]) => room.x0 >= 0 && room.x1 <= right && !taken.some((other) => meet(room, other)));
    if (!found) continue;
    out[place] = found[0];
    taken.push(found[1]);
  }
  return out;
}

/** Where along the slope its label is farthest from all dots. */
function clearest(dots: readonly Dot[], from: number, to: number): number {
  const places = [0.2, 0.3, 0.4, 0.5, 0.6].map((share) => from + share * (to - from));
  const room = (x: number): number => Math.min(...dots.map((each) => Math.abs(each.x - x)), 1);
  return places.reduce((best, x) => (room(x) > room(best) + 1e-9 ? x : best));
}

interface Box {
  x0: number;
  x1: number;
  y0: number;
  y1: number;
}

function box(x: number, y: number, halfWidth: number, halfHeight: number): Box {
  return { x0: x - halfWidth, x1: x + halfWidth, y0: y - halfHeight, y1: y + halfHeight };
}

function meet(a: Box, b: Box): boolean {
  return a.x0 < b.x1 && b.x0 < a.x1 && a.y0 < b.y1 && b.y0 < a.y1;
}
