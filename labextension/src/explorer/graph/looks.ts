/** How each box looks: one table for both painters. Colours are names of the explorer's CSS variables. */
import { clip } from '../units';
import type { PlacedBox } from './geometry';
import type { Overlay } from './overlays';
import type { Fate, Sheet } from './sheet';

export interface Look {
  fill: string;
  stroke: string;
  /** Of the line around it, in pixels. */
  thick: number;
  radius: number;
  dashed: boolean;
  /** Of a node: in its middle; of a group: its title, from the left. */
  text: string;
  ink: string;
  bold: boolean;
  /** Behind the title of an open group, where it is not the same as `fill`. */
  band: string;
  /** At the right end of a group's title, or of a node that an overlay says something of: below its text. */
  note: string;
  /** Beside a group's title: it can be opened. */
  toggle: boolean;
  /** One of several that are alike: their edges show behind it. */
  stacked: boolean;
  fate: Fate;
}

/** Widths of a character of a title and of small print, in pixels: those that the layout counts with. */
const BOLD = 7.1;
const SMALL = 5.9;
const TOGGLE = 22;
const ROOM = 12;

const NODES: Record<Fate, Pick<Look, 'fill' | 'stroke' | 'thick' | 'radius' | 'ink'>> = {
  fused: { fill: 'bg', stroke: 'fused', thick: 1.25, radius: 4, ink: 'ink' },
  library: { fill: 'bg', stroke: 'library', thick: 1.75, radius: 3, ink: 'ink' },
  fallback: { fill: 'tint-fallback', stroke: 'fallback', thick: 1.75, radius: 3, ink: 'ink' },
  captured: { fill: 'bg', stroke: 'captured', thick: 1, radius: 4, ink: 'ink' },
  plain: { fill: 'bg', stroke: 'line', thick: 1, radius: 4, ink: 'quiet' },
  input: { fill: 'soft', stroke: 'line', thick: 1, radius: 12, ink: 'ink' },
};

export function lookOf(sheet: Sheet, box: PlacedBox, overlay: Overlay): Look {
  const look = sheet.group(box.ref) ? groupLook(sheet, box, overlay) : nodeLook(sheet, box);
  const mark = overlay.of(box.ref);
  if (!mark) return overlay.id === 'fate' ? look : { ...look, fill: box.open ? 'none' : 'bg' };
  const heat = { ink: mark.heat > 3 ? 'heat-ink' : 'ink', [box.open ? 'band' : 'fill']: `heat-${mark.heat}` };
  const group = sheet.group(box.ref);
  const edge = mark.first ? { stroke: 'break', thick: 3 } : {};
  if (!group) return { ...look, ...heat, ...edge, note: mark.text };
  const note = fitting([mark.text, ''], box.width - TOGGLE - ROOM - look.text.length * BOLD);
  // An open group but a kernel says by its contents what it would say.
  return box.open && group.kind !== 'kernel' ? { ...look, note } : { ...look, fill: 'none', ...heat, ...edge, note };
}

function nodeLook(sheet: Sheet, box: PlacedBox): Look {
  const fate = sheet.fate(box.ref);
  const kernel = fate === 'fused' && sheet.call(box.ref) !== undefined;
  return {
    ...NODES[fate], ...(kernel && { radius: 12, thick: 1.75 }),
    text: clip(sheet.label(box.ref), 40), bold: false, band: 'none', note: '', dashed: false, toggle: false, stacked: false, fate,
  };
}

function groupLook(sheet: Sheet, box: PlacedBox, overlay: Overlay): Look {
  const group = sheet.group(box.ref);
  const kernel = group?.kind === 'kernel';
  const room = box.width - TOGGLE - ROOM;
  const text = clip(sheet.label(box.ref), Math.max(3, Math.floor(room / BOLD)));
  const notes = overlay.id === 'fate' ? sheet.notes(box.ref) : [''];
  return {
    fill: kernel ? 'tint-fused' : inside(box),
    stroke: kernel ? 'fused' : 'line', thick: kernel ? 1.75 : 1, radius: kernel ? 10 : 8,
    dashed: group?.kind === 'part' || group?.kind === 'line',
    band: 'none', text, ink: kernel ? 'fused' : 'quiet', bold: true, toggle: true, fate: sheet.fate(box.ref),
    stacked: group?.kind === 'repeat' && (box.folded || !box.open),
    note: fitting(notes, room - text.length * BOLD - 8),
  };
}

/** What is behind what a group holds. */
function inside(box: PlacedBox): string {
  if (box.folded) return 'bg';
  return box.open ? 'none' : 'soft';
}

/** The first of some texts that there is room for. */
function fitting(texts: readonly string[], room: number): string {
  return texts.find((text) => text.length * SMALL <= room) ?? '';
}
