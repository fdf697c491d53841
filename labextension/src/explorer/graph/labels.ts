/** Names of boxes where the drawing is too small for those within it: as large as can be read, and only where they fit. */
import { clip } from '../units';
import { CLOSED_HEIGHT, type Geometry, type PlacedBox } from './geometry';
import type { Look } from './looks';

/** Pixels on the screen, whatever the scale. */
export const LABEL_SIZE = 10;
const LINE = 12;
const REGULAR = 5.7;
const BOLD = 6.3;
/** A box that is less high has no name: it would hide the box. */
const LEAST = 5;
/** How far a name may go over its box, where nothing is written beside it. */
const LONGEST = 170;
/** Characters that a name is cut to at least. */
const FEW = 4;

/** `x` and `y`: of the middle of the text, on the drawing. */
export interface Label {
  /** Place in the geometry's boxes. */
  box: number;
  text: string;
  x: number;
  y: number;
}

/** The names that can be read at this scale: groups before nodes, outer before inner, no two over each other. */
export function labels(geometry: Geometry, looks: readonly Look[], scale: number): Label[] {
  const out: Label[] = [];
  const taken = new Taken();
  for (const nodes of [false, true]) {
    geometry.boxes.forEach((box, at) => {
      const look = looks[at];
      if (!look || nodes === look.toggle) return;
      if (nodes && box.height * scale < LEAST) return;
      const [x, y] = [(box.x + box.width / 2) * scale, middle(box, scale)];
      const text = texts(look, box.width * scale).find((each) => taken.take(x, y, width(each, look.bold)));
      if (text) out.push({ box: at, text, x: x / scale, y: y / scale });
    });
  }
  return out;
}

/** On the screen: in the middle of a box; of an open group at its top. */
function middle(box: PlacedBox, scale: number): number {
  if (!box.open) return (box.y + box.height / 2) * scale;
  return box.y * scale + Math.max((CLOSED_HEIGHT * scale) / 2, LINE / 2 + 1);
}

/** What a box might be called, the longest first. */
function texts(look: Look, wide: number): string[] {
  const letters = (pixels: number): number => Math.floor(pixels / (look.bold ? BOLD : REGULAR));
  const whole = look.toggle && look.note ? [`${look.text} · ${look.note}`] : [];
  const out = whole.filter((text) => text.length <= letters(wide - 2));
  if (!look.text) return out;
  out.push(clip(look.text, Math.max(letters(wide - 2), letters(LONGEST))));
  const inside = letters(wide - 2);
  return inside >= FEW && inside < look.text.length ? [...out, clip(look.text, inside)] : out;
}

function width(text: string, bold: boolean): number {
  return text.length * (bold ? BOLD : REGULAR);
}

/** What of the screen has text on it, by lines of text. */
class Taken {
  private readonly lines = new Map<number, [left: number, right: number, y: number][]>();

  /** Takes the room of a text if none of it is taken. */
  take(x: number, y: number, wide: number): boolean {
    const line = Math.floor(y / LINE);
    const [left, right] = [x - wide / 2 - 2, x + wide / 2 + 2];
    for (const near of [line - 1, line, line + 1]) {
      for (const [from, to, at] of this.lines.get(near) ?? []) {
        if (from < right && to > left && Math.abs(at - y) < LINE) return false;
      }
    }
    const here = this.lines.get(line);
    if (here) here.push([left, right, y]);
    else this.lines.set(line, [[left, right, y]]);
    return true;
  }
}
