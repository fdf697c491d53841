/** Draws with SVG elements: each box is one that a screen reader and a test can find. */
import { CLOSED_HEIGHT, type PlacedBox, type PlacedEdge } from './geometry';
import { LABEL_SIZE, labels, type Label } from './labels';
import type { Look } from './looks';
import { STACK, TAG_SCALE, TAG_SIZE, TEXT_SCALE, TEXT_SIZE, type Marks, type Painter, type Picture, type View } from './painter';

const NAMESPACE = 'http://www.w3.org/2000/svg';
type Attributes = Record<string, string | number>;

export class SvgPainter implements Painter {
  readonly element = make('svg', { class: 'nbc-graph-svg' });
  private readonly world = make('g', {});
  private boxes: SVGElement[] = [];
  private edges: SVGElement[] = [];
  private labels: SVGElement[] = [];
  /** The edge of each label. */
  private tagged: number[] = [];
  /** Names where the boxes are too small for their own, made for one scale. */
  private readonly far = make('g', { class: 'nbc-graph-far-names nbc-lit' });
  private names: { label: Label; element: SVGElement }[] = [];
  private picture: Picture | null = null;
  private scale = 0;
  private marks: Marks | null = null;

  constructor() {
    this.element.append(this.world);
  }

  draw(picture: Picture): void {
    const { geometry, looks, sheet } = picture;
    this.picture = picture;
    this.scale = 0;
    this.boxes = geometry.boxes.map((box, at) => {
      const look = looks[at] as Look;
      // What is written in it comes first: that is what one who speaks to the page says.
      const words = [`${look.text} ${look.note}`.trim(), ...sheet.words(box.ref).slice(1)].filter(Boolean);
      const group = make('g', { class: 'nbc-graph-box', role: 'button', 'aria-label': words.join(', ') });
      if (box.ref < 0) group.setAttribute('aria-expanded', String(box.open));
      group.dataset['ref'] = sheet.idOf(box.ref);
      group.append(...drawn(box, look));
      return group;
    });
    this.edges = geometry.edges.map((edge) => make('path', { class: 'nbc-graph-edge', d: path(edge) }));
    this.labels = picture.tags.map(({ x, y, text }) => written(text, { class: 'nbc-graph-tag', x, y, 'font-size': TAG_SIZE }));
    this.tagged = picture.tags.map(({ edge }) => edge);
    // Frames lie under edges, and edges under what they join.
    const frames = this.boxes.filter((_, at) => geometry.boxes[at]?.open);
    const fronts = this.boxes.filter((_, at) => !geometry.boxes[at]?.open);
    this.world.replaceChildren(...frames, ...this.edges, ...fronts, ...this.labels, this.far);
  }

  move(view: View): void {
    this.world.setAttribute('transform', `translate(${view.x} ${view.y}) scale(${view.scale})`);
    this.element.classList.toggle('nbc-graph-far', view.scale < TEXT_SCALE);
    this.element.classList.toggle('nbc-graph-near', view.scale >= TAG_SCALE);
    if (view.scale !== this.scale) this.name(view.scale);
  }

  /** Writes the names that can be read at a scale. */
  private name(scale: number): void {
    this.scale = scale;
    const { picture } = this;
    if (!picture) return;
    const { geometry, looks } = picture;
    this.names = (scale < TEXT_SCALE ? labels(geometry, looks, scale) : []).map((label) => {
      const look = looks[label.box] as Look;
      const element = written(label.text, {
        x: label.x, y: label.y, 'font-size': LABEL_SIZE / scale, 'stroke-width': 2.5 / scale, class: look.bold ? 'nbc-graph-title' : '',
      });
      element.style.fill = colour(look.ink);
      return { label, element };
    });
    this.far.replaceChildren(...this.names.map(({ element }) => element));
    if (this.marks) this.markNames(this.marks);
  }

  private markNames({ lit }: Marks): void {
    for (const { label, element } of this.names) toggle(element, 'nbc-graph-pale', lit !== null && lit[label.box] !== 1);
  }

  mark(marks: Marks): void {
    this.marks = marks;
    this.markNames(marks);
    // One class dims all, and few elements are lit: a hover touches those alone.
    this.element.classList.toggle('nbc-graph-dimmed', marks.lit !== null);
    this.boxes.forEach((element, at) => {
      toggle(element, 'nbc-lit', marks.lit !== null && marks.lit[at] === 1);
      toggle(element, 'nbc-graph-found', marks.found.has(at));
      toggle(element, 'nbc-graph-cursor', marks.cursor === at);
    });
    this.edges.forEach((element, at) => {
      toggle(element, 'nbc-lit', marks.edges !== null && marks.edges[at] === 1);
      toggle(element, 'nbc-graph-thick', marks.edge === at);
    });
    this.labels.forEach((element, at) => toggle(element, 'nbc-lit', marks.edges !== null && marks.edges[this.tagged[at] ?? -1] === 1));
  }

  refresh(): void {
    // Elements take colours from the page.
  }
}

function toggle(element: SVGElement, name: string, on: boolean): void {
  if (element.classList.contains(name) !== on) element.classList.toggle(name, on);
}

function make(name: string, attributes: Attributes): SVGElement {
  const out = document.createElementNS(NAMESPACE, name) as SVGElement;
  for (const [key, value] of Object.entries(attributes)) out.setAttribute(key, String(value));
  return out;
}

function written(text: string, attributes: Attributes): SVGElement {
  const out = make('text', attributes);
  out.textContent = text;
  return out;
}

/** The colour of a look, as the explorer's variable of that name. */
function colour(name: string): string {
  return name === 'none' ? 'none' : `var(--nbc-${name})`;
}

function drawn(box: PlacedBox, look: Look): Node[] {
  const { x, y, width, height } = box;
  const frame = make('rect', { x, y, width, height, rx: Math.min(look.radius, height / 2), 'stroke-width': look.thick });
  frame.style.fill = colour(look.fill);
  frame.style.stroke = colour(look.stroke);
  if (look.dashed) frame.setAttribute('stroke-dasharray', '4 3');
  const middle = y + (box.open ? CLOSED_HEIGHT : height) / 2;
  const out: Node[] = look.stacked ? [...stack(box, frame), frame] : [frame];
  if (look.band !== 'none') {
    const band = make('rect', { x, y, width, height: CLOSED_HEIGHT, rx: look.radius });
    band.style.fill = colour(look.band);
    out.push(band);
  }
  const write = (text: string, attributes: Attributes, ink: string): void => {
    const element = written(text, { y: middle, 'font-size': TEXT_SIZE, ...attributes });
    element.style.fill = colour(ink);
    // Not seen, but two texts are two words.
    if (out.some((each) => each.nodeName === 'text')) out.push(document.createTextNode(' '));
    out.push(element);
  };
  if (look.toggle) {
    const mark = make('path', { class: 'nbc-graph-toggle', d: triangle(x + 13, middle, box.open) });
    mark.style.fill = colour(look.ink);
    out.push(mark);
    write(look.text, { x: x + 22, class: 'nbc-graph-title' }, look.ink);
    if (look.note) write(look.note, { x: x + width - 10, class: 'nbc-graph-note' }, look.ink === 'fused' ? 'quiet' : look.ink);
  } else {
    write(look.text, { x: x + width / 2, class: 'nbc-graph-name' }, look.ink);
    if (look.note) write(look.note, { x: x + width / 2, y: y + height + 8, class: 'nbc-graph-below', 'font-size': TAG_SIZE }, 'ink');
  }
  return out;
}

/** The edges of two boxes behind this one. */
function stack({ x, y, width, height }: PlacedBox, frame: SVGElement): SVGElement[] {
  return [2, 1].map((n) => {
    const behind = frame.cloneNode() as SVGElement;
    for (const [key, value] of Object.entries({ x: x + n * STACK, y: y + n * STACK, width, height })) behind.setAttribute(key, String(value));
    behind.style.fill = 'var(--nbc-bg)';
    return behind;
  });
}

export function triangle(x: number, y: number, open: boolean): string {
  return open ? `M${x - 4} ${y - 2}h8l-4 5z` : `M${x - 2} ${y - 4}v8l5 -4z`;
}

function path({ points }: PlacedEdge): string {
  let out = `M${points[0]} ${points[1]}`;
  for (let n = 2; n + 1 < points.length; n += 2) {
    const [x0, y0, x1, y1] = points.slice(n - 2, n + 2) as [number, number, number, number];
    const half = (y0 + y1) / 2;
    out += x0 === x1 ? `V${y1}` : `C${x0} ${half} ${x1} ${half} ${x1} ${y1}`;
  }
  return out;
}
