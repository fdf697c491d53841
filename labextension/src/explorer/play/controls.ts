/** What can be changed about a compilation: as the kernel answers it, or as a record alone can say it. */
import type { Compilation } from '../../record/generated/record';
import type { Settings } from '../play';

/** An extent that some arguments share. `name` is what it was at first, `extent` what it is. */
export interface Size {
  name: string;
  extent: number;
  where: string[];
  low: number;
  high: number;
}

export interface Controls {
  backend: string;
  backends: string[];
  /** Missing from a kernel of before there were any. */
  target?: string;
  targets?: string[];
  mode: string;
  modes: string[];
  dynamic: boolean | null;
  /** Empty or `mixed` where the arguments have none, or several. */
  dtype: string;
  dtypes: string[];
  sizes: Size[];
  fuse: boolean;
}

export type Answer = { live: false; reason: string } | ({ live: true } & Controls);

/** How a record was compiled, for controls that cannot be used: nothing in it can be changed without a kernel. */
export function recorded(record: Compilation): Controls {
  const inputs = (record.graphs.find((graph) => graph.stage === 'fx')?.nodes ?? []).filter(
    (node) => node.kind === 'input' && !/_(parameters|buffers)_/.test(node.name),
  );
  const sizes = new Map<number, Size>();
  for (const { name, shape } of inputs) {
    for (const [dim, extent] of (shape ?? []).entries()) {
      if (typeof extent !== 'number' || extent < 2) continue;
      const place = `${argument(name)}[${dim}]`;
      const known = sizes.get(extent);
      if (known) known.where.push(place);
      else sizes.set(extent, { name: String(extent), extent, where: [place], low: 1, high: 16 * extent });
    }
  }
  const dtypes = [...new Set(inputs.map((node) => (node.dtype ?? '').replace('torch.', '')).filter((each) => each.includes('float')))];
  const target = typeof record.options['target'] === 'string' ? record.options['target'] : 'auto';
  const dtype = dtypes.length === 1 ? (dtypes[0] ?? '') : '';
  return {
    backend: record.backend, backends: [record.backend], target, targets: [target], mode: record.mode, modes: [record.mode], dynamic: null,
    dtype, dtypes: dtype ? [dtype] : [], sizes: [...sizes.values()], fuse: record.options['fuse'] !== false,
  };
}

/** `x` of `l_x_`, as Dynamo names a local. */
function argument(name: string): string {
  return /^l_(.+)_$/.exec(name)?.[1] ?? name;
}

/** What was changed, in a few words: `inductor, 64 → 128`. */
export function inWords(settings: Settings, now: Controls): string {
  const { backend, target, mode, dynamic, dtype, fuse, sizes } = settings;
  const words = [
    backend ?? '',
    target === undefined ? '' : `for ${target}`,
    mode ?? '',
    dynamic === undefined ? '' : `dynamic ${dynamic === null ? 'auto' : dynamic ? 'on' : 'off'}`,
    dtype ?? '',
    fuse === undefined ? '' : fuse ? 'fusion on' : 'fusion off',
    ...Object.entries(sizes ?? {}).map(([name, extent]) => {
      const size = now.sizes.find((each) => each.name === name);
      return `${size?.where[0] ?? 'size'} ${size?.extent ?? name} → ${extent}`;
    }),
  ];
  return words.filter(Boolean).join(', ');
}

/** Settings without what is as it is now. */
export function differing(draft: Settings, now: Controls): Settings {
  const out: Settings = {};
  if (draft.backend !== undefined && draft.backend !== now.backend) out.backend = draft.backend;
  if (draft.target !== undefined && draft.target !== now.target) out.target = draft.target;
  if (draft.mode !== undefined && draft.mode !== now.mode) out.mode = draft.mode;
  if (draft.dynamic !== undefined && draft.dynamic !== now.dynamic) out.dynamic = draft.dynamic;
  if (draft.dtype !== undefined && draft.dtype !== now.dtype) out.dtype = draft.dtype;
  if (draft.fuse !== undefined && draft.fuse !== now.fuse) out.fuse = draft.fuse;
  const sizes = Object.entries(draft.sizes ?? {}).filter(([name, extent]) => now.sizes.find((size) => size.name === name)?.extent !== extent);
  if (sizes.length) out.sizes = Object.fromEntries(sizes);
  return out;
}

/** Places on a slider from 0 to {@link STEPS}: sizes are felt by their ratio. */
export const STEPS = 1000;

export function toSlider(extent: number, size: Size): number {
  const [low, high] = [Math.log(size.low), Math.log(Math.max(size.high, size.low + 1))];
  return Math.round((STEPS * (Math.log(Math.max(extent, size.low)) - low)) / (high - low));
}

/** The extent at a place: round numbers are nearer than others. */
export function fromSlider(place: number, size: Size): number {
  const [low, high] = [Math.log(size.low), Math.log(Math.max(size.high, size.low + 1))];
  const exact = Math.exp(low + (place / STEPS) * (high - low));
  const snaps = [2 ** Math.round(Math.log2(exact)), size.extent, Number(size.name)];
  const near = snaps.find((each) => Math.abs(Math.log(each / exact)) < 0.04 && each >= size.low && each <= size.high);
  return near ?? Math.min(size.high, Math.max(size.low, Math.round(exact)));
}
