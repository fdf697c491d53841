/** What the two painters have in common: SVG for what an eye can take in, canvas for the rest. */
import type { Geometry, PlacedBox } from './geometry';
import { lookOf, type Look } from './looks';
import type { Overlay } from './overlays';
import { same, type Sheet } from './sheet';

/** What is drawn: where everything is, how it looks, what is written on edges. */
export interface Picture {
  sheet: Sheet;
  geometry: Geometry;
  looks: readonly Look[];
  /** Shapes beside edges, by their places in the geometry. */
  tags: readonly Tag[];
}

export interface Tag {
  edge: number;
  text: string;
  x: number;
  y: number;
}

/** From drawing to screen: times `scale`, plus `x` and `y`. */
export interface View {
  x: number;
  y: number;
  scale: number;
}

/** What is marked among the boxes, by their places. */
export interface Marks {
  /** 1 for each box that is lit, 0 for one that is dimmed; `null`: nothing is chosen. */
  lit: Uint8Array | null;
  /** Lit edges, likewise. */
  edges: Uint8Array | null;
  found: ReadonlySet<number>;
  /** The box that the keyboard is at; -1: none. */
  cursor: number;
  /** The edge under the pointer; -1: none. */
  edge: number;
}

export interface Painter {
  readonly element: HTMLElement | SVGElement;
  draw(picture: Picture): void;
  move(view: View): void;
  mark(marks: Marks): void;
  /** Colours may have changed, or the room. */
  refresh(): void;
}

/** Scales below which names are written by what fits (see labels.ts), and the shapes beside edges are not. */
export const TEXT_SCALE = 0.85;
export const TAG_SCALE = 1.15;
/** Pixels between the edges of boxes that are alike. */
export const STACK = 4;
export const TEXT_SIZE = 11;
export const TAG_SIZE = 9;
const TAG_WIDTH = 5.2;

export function picture(sheet: Sheet, geometry: Geometry, overlay: Overlay): Picture {
  return { sheet, geometry, looks: geometry.boxes.map((box) => lookOf(sheet, box, overlay)), tags: tags(sheet, geometry) };
}

/** One shape for each value where it leaves its box, if nothing is written there yet. */
function tags(sheet: Sheet, geometry: Geometry): Tag[] {
  const out: Tag[] = [];
  const written = new Set<string>();
  const taken = new Map<number, number[]>();
  geometry.edges.forEach((edge, at) => {
    const key = `${edge.from}:${edge.value}`;
    const text = sheet.tensor(edge.value);
    if (edge.from < 0 || !text || written.has(key)) return;
    written.add(key);
    const [x, y] = [(edge.points[0] as number) + 3, (edge.points[1] as number) + 9];
    const others = taken.get(y) ?? [];
    if (others.some((other) => Math.abs(other - x) < text.length * TAG_WIDTH + 6)) return;
    taken.set(y, [...others, x]);
    out.push({ edge: at, text, x, y });
  });
  return out;
}

/** Which edges are lit: their value is, and the boxes at both ends. */
export function litEdges(picture: Picture, lit: Uint8Array, ids: ReadonlySet<string>): Uint8Array {
  const { geometry, sheet } = picture;
  const ends = (at: number): boolean => at < 0 || lit[at] === 1;
  return Uint8Array.from(geometry.edges, ({ value, from, to }) =>
    ids.has(sheet.nodes[value]?.id ?? '') && ends(from) && ends(to) ? 1 : 0);
}

/** The place of a box in a geometry; -1: it is in a group that is closed. */
export function placeOf(geometry: Geometry, box: Pick<PlacedBox, 'ref' | 'group'>): number {
  return geometry.boxes.findIndex((each) => same(each, box));
}
