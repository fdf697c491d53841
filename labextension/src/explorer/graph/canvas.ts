/** Draws on a canvas: only what is in view, and no text where it could not be read. */
import { nextFrame } from '../frame';
import { CLOSED_HEIGHT, type PlacedBox, type PlacedEdge } from './geometry';
import { LABEL_SIZE, labels, type Label } from './labels';
import type { Look } from './looks';
import { STACK, TAG_SCALE, TAG_SIZE, TEXT_SCALE, TEXT_SIZE, type Marks, type Painter, type Picture, type View } from './painter';
import { triangle } from './svg';

const DIM = 0.32;
/** Scale below which boxes are plain rectangles. */
const PLAIN_SCALE = 0.3;
/** Pixels on the screen below which an edge is a straight line. */
const STRAIGHT = 14;

export class CanvasPainter implements Painter {
  readonly element = document.createElement('canvas');
  private readonly colours = new Map<string, string>();
  private readonly pen: CanvasRenderingContext2D | null;
  private picture: Picture | null = null;
  private view: View = { x: 0, y: 0, scale: 1 };
  private marks: Marks = { lit: null, edges: null, found: new Set(), cursor: -1, edge: -1 };
  /** Names where the boxes are too small for their own, made for one scale. */
  private names: { scale: number; labels: readonly Label[] } = { scale: 0, labels: [] };
  private waiting: (() => void) | undefined;
  private font = 'sans-serif';

  constructor() {
    this.element.className = 'nbc-graph-canvas';
    this.pen = this.element.getContext('2d');
  }

  draw(picture: Picture): void {
    this.picture = picture;
    this.names = { scale: 0, labels: [] };
    this.later();
  }

  move(view: View): void {
    this.view = view;
    this.later();
  }

  mark(marks: Marks): void {
    this.marks = marks;
    this.later();
  }

  refresh(): void {
    this.colours.clear();
    this.font = getComputedStyle(this.element).fontFamily || 'sans-serif';
    this.later();
  }

  private later(): void {
    this.waiting ??= nextFrame(this.element, () => {
      this.waiting = undefined;
      this.paint();
    });
  }

  private colour(name: string): string {
    const known = this.colours.get(name);
    if (known !== undefined) return known;
    const found = name === 'none' ? 'transparent' : getComputedStyle(this.element).getPropertyValue(`--nbc-${name}`).trim();
    this.colours.set(name, found);
    return found;
  }

  private paint(): void {
    const { pen, picture, element } = this;
    if (!pen || !picture) return;
    const { x, y, scale } = this.view;
    const dots = this.element.ownerDocument.defaultView?.devicePixelRatio || 1;
    const [width, height] = [element.clientWidth, element.clientHeight];
    const [across, down] = [Math.round(width * dots), Math.round(height * dots)];
    if (element.width !== across) element.width = across;
    if (element.height !== down) element.height = down;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, across, down);
    pen.setTransform(scale * dots, 0, 0, scale * dots, x * dots, y * dots);
    const seen = { left: -x / scale, top: -y / scale, right: (width - x) / scale, bottom: (height - y) / scale };
    const { boxes } = picture.geometry;
    const visible: number[] = [];
    boxes.forEach((box, at) => {
      if (box.x > seen.right || box.x + box.width < seen.left || box.y > seen.bottom || box.y + box.height < seen.top) return;
      visible.push(at);
    });
    this.paintBoxes(visible.filter((at) => boxes[at]?.open));
    this.paintEdges(picture.geometry.edges, seen);
    this.paintBoxes(visible.filter((at) => !boxes[at]?.open));
    if (scale < TEXT_SCALE) this.writeNames(picture, seen);
    else for (const at of visible) this.write(boxes[at] as PlacedBox, picture.looks[at] as Look, this.strength(at));
    if (scale >= TAG_SCALE) this.paintTags(picture, seen);
    this.paintRings(visible);
    pen.globalAlpha = 1;
  }

  private writeNames(picture: Picture, seen: Seen): void {
    const { pen } = this;
    if (!pen) return;
    const { scale } = this.view;
    if (this.names.scale !== scale) this.names = { scale, labels: labels(picture.geometry, picture.looks, scale) };
    pen.textAlign = 'center';
    pen.textBaseline = 'middle';
    pen.strokeStyle = this.colour('bg');
    pen.lineWidth = 2.5 / scale;
    for (const { box, text, x, y } of this.names.labels) {
      if (x < seen.left || x > seen.right || y < seen.top || y > seen.bottom) continue;
      const look = picture.looks[box] as Look;
      pen.globalAlpha = this.strength(box);
      pen.font = `${look.bold ? '600 ' : ''}${LABEL_SIZE / scale}px ${this.font}`;
      pen.fillStyle = this.colour(look.ink);
      pen.strokeText(text, x, y);
      pen.fillText(text, x, y);
    }
  }

  private strength(at: number): number {
    return this.marks.lit && this.marks.lit[at] === 0 ? DIM : 1;
  }

  /** Boxes of one look and strength are one path: thousands of them are a few calls. */
  private paintBoxes(places: readonly number[]): void {
    const { pen, picture } = this;
    if (!pen || !picture) return;
    const alike = new Map<string, number[]>();
    for (const at of places) {
      const look = picture.looks[at] as Look;
      const key = `${look.fill} ${look.stroke} ${look.thick} ${look.dashed} ${look.stacked} ${this.strength(at)}`;
      const list = alike.get(key);
      if (list) list.push(at);
      else alike.set(key, [at]);
    }
    const plain = this.view.scale < PLAIN_SCALE;
    for (const list of alike.values()) {
      const first = list[0] as number;
      const look = picture.looks[first] as Look;
      pen.globalAlpha = this.strength(first);
      if (look.stacked) this.paintStacks(list);
      pen.beginPath();
      for (const at of list) {
        const box = picture.geometry.boxes[at] as PlacedBox;
        if (plain) pen.rect(box.x, box.y, box.width, box.height);
        else pen.roundRect(box.x, box.y, box.width, box.height, Math.min((picture.looks[at] as Look).radius, box.height / 2));
      }
      pen.fillStyle = this.colour(look.fill);
      pen.strokeStyle = this.colour(look.stroke);
      pen.lineWidth = look.thick;
      pen.setLineDash(look.dashed && !plain ? [4, 3] : []);
      pen.fill();
      pen.stroke();
    }
    pen.setLineDash([]);
    for (const at of places) this.paintBand(picture.geometry.boxes[at] as PlacedBox, picture.looks[at] as Look, this.strength(at));
  }

  /** The edges of boxes that are alike, behind the one that is drawn. */
  private paintStacks(list: readonly number[]): void {
    const { pen, picture } = this;
    if (!pen || !picture) return;
    for (const n of [2, 1]) {
      for (const at of list) {
        const { x, y, width, height } = picture.geometry.boxes[at] as PlacedBox;
        const look = picture.looks[at] as Look;
        pen.beginPath();
        pen.roundRect(x + n * STACK, y + n * STACK, width, height, look.radius);
        pen.fillStyle = this.colour('bg');
        pen.strokeStyle = this.colour(look.stroke);
        pen.fill();
        pen.stroke();
      }
    }
  }

  private paintBand(box: PlacedBox, look: Look, strength: number): void {
    const { pen } = this;
    if (!pen || look.band === 'none') return;
    pen.globalAlpha = strength;
    pen.fillStyle = this.colour(look.band);
    pen.beginPath();
    pen.roundRect(box.x, box.y, box.width, CLOSED_HEIGHT, look.radius);
    pen.fill();
  }

  private paintEdges(edges: readonly PlacedEdge[], seen: Seen): void {
    const { pen, marks } = this;
    if (!pen) return;
    const { scale } = this.view;
    const layers: [number, number][] = marks.edges ? [[0, DIM], [1, 1]] : [[-1, 1]];
    pen.strokeStyle = this.colour('edge');
    pen.lineWidth = 1.1;
    for (const [which, alpha] of layers) {
      pen.globalAlpha = alpha;
      pen.beginPath();
      edges.forEach((edge, at) => {
        if (edge.left > seen.right || edge.right < seen.left) return;
        const { points } = edge;
        if ((points[1] as number) > seen.bottom || (points[points.length - 1] as number) < seen.top) return;
        if (which < 0 || marks.edges?.[at] === which) trace(pen, points, scale);
      });
      pen.stroke();
    }
    const pointed = edges[marks.edge];
    if (!pointed) return;
    pen.globalAlpha = 1;
    pen.lineWidth = 2.5;
    pen.beginPath();
    trace(pen, pointed.points, scale);
    pen.stroke();
  }

  private write(box: PlacedBox, look: Look, strength: number): void {
    const { pen } = this;
    if (!pen) return;
    const middle = box.y + (box.open ? CLOSED_HEIGHT : box.height) / 2;
    pen.globalAlpha = strength;
    pen.textBaseline = 'middle';
    pen.fillStyle = this.colour(look.ink);
    pen.font = `${look.bold ? '600 ' : ''}${TEXT_SIZE}px ${this.font}`;
    if (!look.toggle) {
      pen.textAlign = 'center';
      pen.fillText(look.text, box.x + box.width / 2, middle + 0.5);
      if (!look.note) return;
      pen.fillStyle = this.colour('ink');
      pen.strokeStyle = this.colour('bg');
      pen.lineWidth = 2;
      pen.font = `${TAG_SIZE}px ${this.font}`;
      pen.strokeText(look.note, box.x + box.width / 2, box.y + box.height + 8);
      pen.fillText(look.note, box.x + box.width / 2, box.y + box.height + 8);
      return;
    }
    pen.textAlign = 'left';
    pen.fill(new Path2D(triangle(box.x + 13, middle, box.open)));
    pen.fillText(look.text, box.x + 22, middle + 0.5);
    if (!look.note) return;
    pen.textAlign = 'right';
    pen.fillStyle = this.colour(look.ink === 'fused' ? 'quiet' : look.ink);
    pen.font = `${TEXT_SIZE}px ${this.font}`;
    pen.fillText(look.note, box.x + box.width - 10, middle + 0.5);
  }

  private paintTags(picture: Picture, seen: Seen): void {
    const { pen } = this;
    if (!pen) return;
    pen.font = `${TAG_SIZE}px ${this.font}`;
    pen.textAlign = 'left';
    pen.fillStyle = this.colour('quiet');
    for (const { edge, text, x, y } of picture.tags) {
      if (x > seen.right || y < seen.top || y > seen.bottom) continue;
      pen.globalAlpha = this.marks.edges && this.marks.edges[edge] === 0 ? DIM : 1;
      pen.fillText(text, x, y);
    }
  }

  private paintRings(visible: readonly number[]): void {
    const { pen, picture, marks } = this;
    if (!pen || !picture || (!marks.found.size && marks.cursor < 0)) return;
    pen.globalAlpha = 1;
    pen.strokeStyle = this.colour('focus');
    for (const at of visible) {
      if (at !== marks.cursor && !marks.found.has(at)) continue;
      const box = picture.geometry.boxes[at] as PlacedBox;
      pen.lineWidth = at === marks.cursor ? 2.5 : 1.5;
      pen.setLineDash(at === marks.cursor ? [] : [3, 2]);
      pen.beginPath();
      pen.roundRect(box.x - 3, box.y - 3, box.width + 6, box.height + 6, 6);
      pen.stroke();
    }
    pen.setLineDash([]);
  }
}

interface Seen {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

function trace(pen: CanvasRenderingContext2D, points: readonly number[], scale: number): void {
  pen.moveTo(points[0] as number, points[1] as number);
  for (let n = 2; n + 1 < points.length; n += 2) {
    const [x0, y0] = [points[n - 2] as number, points[n - 1] as number];
    const [x1, y1] = [points[n] as number, points[n + 1] as number];
    if (x0 === x1 || (y1 - y0 + Math.abs(x1 - x0)) * scale < STRAIGHT) pen.lineTo(x1, y1);
    else pen.bezierCurveTo(x0, (y0 + y1) / 2, x1, (y0 + y1) / 2, x1, y1);
  }
}
