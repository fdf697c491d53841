/** The drawing in its place: what is in view, what is pointed at, what is lit. */
import { effect, untracked } from '@preact/signals';
import type { State } from '../state';
import { CanvasPainter } from './canvas';
import { boxAt, CLOSED_HEIGHT, edgeAt, type Geometry, type PlacedBox } from './geometry';
import { litEdges, picture, placeOf, type Painter, type Picture, type View } from './painter';
import type { Overlay } from './overlays';
import type { Sheet } from './sheet';
import { SvgPainter } from './svg';
import { cornerFor, type Tip } from './tip';

/** Boxes above which a canvas draws. */
export const MANY = 1000;
const MOST = 4;
/** At first a drawing is shown this large at least, from its top: then its words can be read. */
const LEGIBLE = 0.85;
const STEP = 1.25;
const PAN = 48;
/** Pixels that a pressed pointer may move and still click. */
const STILL = 4;
/** Pixels of the drawing that stay in view, and its width when it is smallest: it may be a thousand times as tall. */
const KEPT = 48;
const SLIMMEST = 30;
const NEAR = 5;
const TITLE_PIXELS = 13;

export type Spot = Pick<PlacedBox, 'ref' | 'group'>;

/** What part of the drawing's height is in view, 1 being all of it. */
export interface Extent {
  from: number;
  part: number;
}

export interface Told {
  moved(extent: Extent): void;
  toggle(spot: Spot): void;
  /** Shows all of some equal modules, or the first alone. */
  unfold(spot: Spot): void;
  tip(tip: Tip | null): void;
  /** For readers who do not see the keyboard's place. */
  say(words: string): void;
}

export class Viewer {
  private painter: Painter | null = null;
  private drawn: Picture | null = null;
  private view: View = { x: 0, y: 0, scale: 1 };
  private found: readonly Spot[] = [];
  private cursor: Spot | null = null;
  private edge = -1;
  private grip: { x: number; y: number; view: View; moved: boolean } | null = null;
  private placed = false;
  /** The view is one that was chosen for the room that there was, and goes with it. */
  private fitted: 'first' | 'whole' | null = null;
  private readonly stops: (() => void)[] = [];

  constructor(
    private readonly root: HTMLElement,
    private readonly state: State,
    private readonly told: Told,
  ) {
    this.listen();
    const resized = new ResizeObserver(() => this.resize());
    resized.observe(root);
    this.stops.push(
      () => resized.disconnect(),
      effect(() => {
        void state.lit.value;
        this.mark();
      }),
      effect(() => {
        void state.host.theme.value;
        this.painter?.refresh();
      }),
      effect(() => {
        const pinned = state.pinned.value;
        if (pinned) untracked(() => this.follow(pinned.ids));
      }),
    );
  }

  dispose(): void {
    for (const stop of this.stops) stop();
    this.told.tip(null);
  }

  /** Draws. `held`: the box that is to stay where it is on the screen. */
  show(sheet: Sheet, geometry: Geometry, overlay: Overlay, held: Spot | null): void {
    const before = held && this.box(held);
    const drawn = picture(sheet, geometry, overlay);
    const large = geometry.boxes.length > MANY;
    if (!this.painter || large !== this.painter instanceof CanvasPainter) {
      this.painter = large ? new CanvasPainter() : new SvgPainter();
      this.root.replaceChildren(this.painter.element);
      this.painter.refresh();
    }
    const other = this.drawn?.sheet !== sheet;
    this.drawn = drawn;
    this.painter.draw(drawn);
    const after = held && this.box(held);
    // Another drawing, or one that became so short that little of it is left in view.
    if (other || this.view.y + this.tall() * this.view.scale < this.size().height / 3) this.placed = false;
    if (!this.placed) {
      this.first();
      this.catchUp();
    } else if (before && after) this.pan((before.x - after.x) * this.view.scale, (before.y - after.y) * this.view.scale);
    else this.look(this.view);
    this.mark();
  }

  /** What a search found. */
  find(found: readonly Spot[]): void {
    this.found = found;
    this.mark();
  }

  /** All of the drawing. */
  fit(): void {
    const { width, height } = this.size();
    this.look({ x: 0, y: 0, scale: this.whole() });
    const { scale } = this.view;
    this.look({ x: (width - this.wide() * scale) / 2, y: Math.max(0, (height - this.tall() * scale) / 2), scale });
    this.fitted = 'whole';
  }

  zoom(by: number, x = this.size().width / 2, y = this.size().height / 2): void {
    const scale = Math.min(MOST, Math.max(Math.min(this.whole(), 1) * 0.8, this.view.scale * by));
    const grown = scale / this.view.scale;
    this.look({ x: x - (x - this.view.x) * grown, y: y - (y - this.view.y) * grown, scale });
  }

  /** Brings the box of a node into view, if it is drawn. */
  seek(ref: number): void {
    const box = this.drawn?.geometry.boxes.find((each) => each.ref === ref);
    if (box) this.reveal(box);
  }

  /** Brings a box into view; with `keyboard` it is where arrow keys go on from. */
  reveal(spot: Spot, keyboard = false): void {
    const box = this.box(spot);
    if (!box) return;
    if (keyboard) this.cursor = spot;
    const { width, height } = this.size();
    const { x, y, scale } = this.view;
    const [left, top] = [box.x * scale + x, box.y * scale + y];
    const tall = Math.min(box.height, CLOSED_HEIGHT) * scale;
    if (left < 0 || top < 0 || left + box.width * scale > width || top + tall > height) {
      const middle = box.x + Math.min(box.width, width / scale) / 2;
      this.look({ x: width / 2 - middle * scale, y: height / 3 - box.y * scale, scale });
    }
    this.mark();
  }

  private box(spot: Spot): PlacedBox | undefined {
    return this.drawn?.geometry.boxes[placeOf(this.drawn.geometry, spot)];
  }

  private size(): { width: number; height: number } {
    return { width: this.root.clientWidth, height: this.root.clientHeight };
  }

  private wide(): number {
    return this.drawn?.geometry.width ?? 1;
  }

  private tall(): number {
    return this.drawn?.geometry.height ?? 1;
  }

  /** The scale at which all is in view, if that can be seen. */
  private whole(): number {
    const { width, height } = this.size();
    return Math.min(1.25, width / this.wide(), Math.max(SLIMMEST / this.wide(), height / this.tall()));
  }

  private first(): void {
    const { width, height } = this.size();
    if (!width || !height) return;
    this.placed = true;
    const scale = Math.max(this.whole(), Math.min(1, Math.max(LEGIBLE, width / this.wide())));
    const wide = this.wide() * scale;
    const x = wide <= width ? (width - wide) / 2 : Math.min(0, Math.max(width - wide, width / 2 - this.middle(height / scale) * scale));
    this.look({ x, y: Math.max(0, (height - this.tall() * scale) / 2), scale });
    this.fitted = 'first';
  }

  /** Where the nodes are, across, that stand above a height. */
  private middle(height: number): number {
    const above = (this.drawn?.geometry.boxes ?? []).filter((box) => !box.open && box.y < height);
    const middles = above.map((box) => box.x + box.width / 2).sort((a, b) => a - b);
    return middles[Math.floor(middles.length / 2)] ?? 0;
  }

  private resize(): void {
    const { width, height } = this.size();
    // Hidden: there is no room to go by.
    if (!width || !height) return;
    if (this.fitted === 'whole') this.fit();
    else if (!this.placed || this.fitted === 'first') this.first();
    else this.look(this.view);
    this.catchUp();
  }

  /** What was pinned before there was this drawing, or this room, comes into view too. */
  catchUp(): void {
    const pinned = this.state.pinned.peek();
    if (pinned) untracked(() => this.follow(pinned.ids));
  }

  /** Moves the view, as far as some of the drawing stays in it. */
  private look(view: View): void {
    const { width, height } = this.size();
    const { scale } = view;
    const x = Math.min(width - KEPT, Math.max(KEPT - this.wide() * scale, view.x));
    const y = Math.min(height - KEPT, Math.max(KEPT - this.tall() * scale, view.y));
    this.view = { x, y, scale };
    this.fitted = null;
    this.painter?.move(this.view);
    this.told.moved({ from: -y / (this.tall() * scale), part: height / (this.tall() * scale) });
  }

  private pan(x: number, y: number): void {
    this.look({ ...this.view, x: this.view.x + x, y: this.view.y + y });
  }

  /** As a page scrolls: to the ends of the drawing and no further. Returns whether it moved. */
  private scroll(across: number, down: number): boolean {
    const { width, height } = this.size();
    const { x, y, scale } = this.view;
    const held = (at: number, by: number, room: number, full: number): number =>
      full <= room ? at : Math.min(Math.max(at, 0), Math.max(Math.min(at, room - full), at - by));
    const next = { x: held(x, across, width, this.wide() * scale), y: held(y, down, height, this.tall() * scale), scale };
    if (next.x === x && next.y === y) return false;
    this.look(next);
    return true;
  }

  private mark(): void {
    const lit = this.state.lit.value;
    const { drawn, painter } = this;
    if (!drawn || !painter) return;
    const boxes = lit && drawn.sheet.lit(drawn.geometry, lit);
    painter.mark({
      lit: boxes, edges: lit && boxes && litEdges(drawn, boxes, lit.ids), edge: this.edge,
      found: new Set(this.found.map((spot) => this.shown(spot)).filter((at) => at >= 0)),
      cursor: this.cursor ? placeOf(drawn.geometry, this.cursor) : -1,
    });
  }

  /** The place of a box, or of the closed group that it is in. */
  private shown(spot: Spot): number {
    const { drawn } = this;
    if (!drawn) return -1;
    const itself = placeOf(drawn.geometry, spot);
    if (itself >= 0) return itself;
    for (const group of drawn.sheet.around(spot.group)) {
      const at = drawn.geometry.boxes.findIndex((box) => box.ref === -group);
      if (at >= 0) return at;
    }
    return -1;
  }

  /** What was pinned elsewhere comes into view. */
  private follow(ids: readonly string[]): void {
    const lit = this.state.lit.value;
    const { drawn } = this;
    if (!drawn || !lit) return;
    const { boxes } = drawn.geometry;
    const marks = drawn.sheet.lit(drawn.geometry, lit);
    const own = boxes.find((box) => ids.includes(drawn.sheet.idOf(box.ref)));
    const first = own ?? boxes.find((box, at) => marks[at] === 1 && !box.open) ?? boxes.find((box, at) => marks[at] === 1 && box.folded);
    const inView = !own && boxes.some((box, at) => marks[at] === 1 && !box.open && this.isSeen(box));
    if (first && !inView) this.reveal(first);
  }

  private isSeen(box: PlacedBox): boolean {
    const { width, height } = this.size();
    const { x, y, scale } = this.view;
    const [left, top] = [box.x * scale + x, box.y * scale + y];
    return left < width && top < height && left + box.width * scale > 0 && top + box.height * scale > 0;
  }

  private listen(): void {
    const on = <K extends keyof HTMLElementEventMap>(
      name: K, heard: (event: HTMLElementEventMap[K]) => void, options?: AddEventListenerOptions,
    ): void => {
      this.root.addEventListener(name, heard, options);
      this.stops.push(() => this.root.removeEventListener(name, heard, options));
    };
    on('pointerdown', (event) => this.press(event));
    on('pointermove', (event) => (this.grip ? this.drag(event) : this.point(event)));
    on('pointerup', () => this.root.classList.remove('nbc-graph-held'));
    on('pointercancel', () => this.release());
    on('pointerleave', () => this.leave());
    on('click', (event) => this.click(event));
    on('dblclick', (event) => {
      const at = this.at(event);
      if (at && at.ref < 0) this.told.toggle(at);
    });
    on('wheel', (event) => this.wheel(event), { passive: false });
    on('keydown', (event) => this.key(event));
    on('blur', () => this.goTo(null));
  }

  /** A pointer's place on the drawing. */
  private world(event: MouseEvent): { x: number; y: number } {
    const frame = this.root.getBoundingClientRect();
    const { x, y, scale } = this.view;
    return { x: (event.clientX - frame.left - x) / scale, y: (event.clientY - frame.top - y) / scale };
  }

  private at(event: MouseEvent): PlacedBox | undefined {
    const { x, y } = this.world(event);
    // A name is as high as it is at any scale, and stands for its box.
    const title = Math.max(CLOSED_HEIGHT, TITLE_PIXELS / this.view.scale);
    return this.drawn?.geometry.boxes[boxAt(this.drawn.geometry, x, y, title)];
  }

  private press(event: PointerEvent): void {
    if (event.button !== 0) return;
    this.grip = { x: event.clientX, y: event.clientY, view: this.view, moved: false };
  }

  private drag(event: PointerEvent): void {
    const { grip } = this;
    if (!grip) return;
    if (!(event.buttons & 1)) {
      this.release();
      return;
    }
    const [x, y] = [event.clientX - grip.x, event.clientY - grip.y];
    if (!grip.moved && Math.hypot(x, y) < STILL) return;
    if (!grip.moved) {
      grip.moved = true;
      this.root.setPointerCapture(event.pointerId);
      this.root.classList.add('nbc-graph-held');
      this.leave();
    }
    this.look({ ...grip.view, x: grip.view.x + x, y: grip.view.y + y });
  }

  private release(): void {
    this.grip = null;
    this.root.classList.remove('nbc-graph-held');
  }

  private point(event: PointerEvent): void {
    const { drawn } = this;
    if (!drawn) return;
    const { x, y } = this.world(event);
    const under = this.at(event);
    // Edges run over the inside of a kernel.
    const inside = under === undefined || (under.open && y > under.y + CLOSED_HEIGHT);
    const edge = inside ? edgeAt(drawn.geometry, x, y, NEAR / this.view.scale) : -1;
    const box = edge < 0 ? under : undefined;
    const frame = this.root.getBoundingClientRect();
    const corner = cornerFor(event, frame);
    this.root.classList.toggle('nbc-graph-over', box !== undefined);
    const changed = edge !== this.edge;
    this.edge = edge;
    if (box) {
      this.state.hover(drawn.sheet.focus(box.ref));
      this.told.tip({ ...corner, lines: drawn.sheet.words(box.ref) });
    } else if (edge >= 0) {
      const { value } = drawn.geometry.edges[edge] as { value: number };
      this.state.hover(drawn.sheet.focus(value));
      this.told.tip({ ...corner, lines: [drawn.sheet.label(value), drawn.sheet.tensor(value)].filter(Boolean) });
    } else {
      this.state.hover(null);
      this.told.tip(null);
    }
    if (changed) this.mark();
  }

  private leave(): void {
    this.edge = -1;
    this.root.classList.remove('nbc-graph-over');
    this.state.hover(null);
    this.told.tip(null);
  }

  private click(event: MouseEvent): void {
    const dragged = this.grip?.moved === true;
    this.release();
    const box = this.at(event);
    if (dragged || box) event.stopPropagation();
    if (dragged || !box || !this.drawn || event.detail > 1) return;
    const { x, y } = this.world(event);
    this.choose(box, this.drawn.sheet, x < box.x + 22 && y < box.y + CLOSED_HEIGHT);
  }

  private choose(box: PlacedBox, sheet: Sheet, onToggle: boolean): void {
    const kind = sheet.group(box.ref)?.kind;
    if (kind === 'repeat' && box.open && !onToggle) this.told.unfold(box);
    else if (kind && (kind !== 'kernel' || onToggle)) this.told.toggle(box);
    else {
      this.told.tip(null);
      this.state.pin(sheet.focus(box.ref));
    }
  }

  private wheel(event: WheelEvent): void {
    const frame = this.root.getBoundingClientRect();
    const focused = (this.root.getRootNode() as Document | ShadowRoot).activeElement === this.root;
    const line = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      this.zoom(Math.exp((-event.deltaY * line) / 200), event.clientX - frame.left, event.clientY - frame.top);
    } else if (focused) {
      const [across, down] = event.shiftKey ? [event.deltaY, event.deltaX] : [event.deltaX, event.deltaY];
      if (this.scroll(across * line, down * line)) event.preventDefault();
    }
  }

  private key(event: KeyboardEvent): void {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const done = this.cursor ? this.walk(event.key, this.cursor) : this.steer(event.key);
    if (!done && !this.scaleBy(event.key)) return;
    event.preventDefault();
    event.stopPropagation();
  }

  private scaleBy(key: string): boolean {
    if (key === '+' || key === '=') this.zoom(STEP);
    else if (key === '-') this.zoom(1 / STEP);
    else if (key === '0') this.fit();
    else return false;
    return true;
  }

  private steer(key: string): boolean {
    if (key === 'ArrowLeft') this.pan(PAN, 0);
    else if (key === 'ArrowRight') this.pan(-PAN, 0);
    else if (key === 'ArrowUp') this.pan(0, PAN);
    else if (key === 'ArrowDown') this.pan(0, -PAN);
    else if (key === 'Enter') this.goTo(this.reading().find((box) => this.isSeen(box)) ?? null);
    else return false;
    return true;
  }

  /** Keys while the keyboard is at a box: along edges, through the boxes as one reads, into groups. */
  private walk(key: string, spot: Spot): boolean {
    const { drawn } = this;
    if (!drawn) return false;
    const group = drawn.sheet.group(spot.ref);
    if (key === 'ArrowRight') this.goTo(this.beside(spot, 1));
    else if (key === 'ArrowLeft') this.goTo(this.beside(spot, -1));
    else if (key === 'ArrowDown') this.goTo(this.along(spot, 'from', 'to') ?? this.beside(spot, 1));
    else if (key === 'ArrowUp') this.goTo(this.along(spot, 'to', 'from') ?? this.beside(spot, -1));
    else if (key === ' ' && group) this.turn(spot);
    else if (key === 'Enter' || key === ' ') this.state.pin(drawn.sheet.focus(spot.ref));
    else if (key === 'Escape') this.goTo(null);
    else return false;
    return true;
  }

  /** Opens what is closed, shows all of what is folded, closes what is open. */
  private turn(spot: Spot): void {
    const box = this.box(spot);
    if (box?.folded) this.told.unfold(spot);
    else this.told.toggle(spot);
  }

  private goTo(spot: Spot | null): void {
    const { drawn } = this;
    if (!drawn || (!spot && !this.cursor)) return;
    this.cursor = spot && { ref: spot.ref, group: spot.group };
    this.state.hover(spot && drawn.sheet.focus(spot.ref));
    if (!spot) {
      this.mark();
      return;
    }
    this.reveal(spot);
    this.told.say(drawn.sheet.words(spot.ref).join(', '));
  }

  /** Boxes from top to bottom, and from left to right. */
  private reading(): PlacedBox[] {
    return [...(this.drawn?.geometry.boxes ?? [])].sort((a, b) => a.y - b.y || a.x - b.x);
  }

  private beside(spot: Spot, by: number): Spot {
    const order = this.reading();
    const at = order.findIndex((box) => box.ref === spot.ref && box.group === spot.group);
    return order[(at + by + order.length) % order.length] ?? spot;
  }

  private along(spot: Spot, near: 'from' | 'to', far: 'from' | 'to'): Spot | undefined {
    const { drawn } = this;
    if (!drawn) return undefined;
    const here = placeOf(drawn.geometry, spot);
    // Below the title of an open group come its contents.
    if (near === 'from' && drawn.geometry.boxes[here]?.open) return undefined;
    const edge = drawn.geometry.edges.find((each) => each[near] === here && each[far] >= 0);
    return edge && drawn.geometry.boxes[edge[far]];
  }
}
