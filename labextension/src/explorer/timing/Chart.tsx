/** One chart: drawn when its place has a width, and anew when that, the theme or what it shows changes. */
import type { Data, Layout, PlotMouseEvent, PlotlyHTMLElement } from 'plotly.js-basic-dist-min';
import { useEffect, useRef } from 'preact/hooks';
import { nextFrame } from '../frame';
import type { Charts } from '../host';
import type { Lit, State } from '../state';
import { palette, type Palette } from './palette';

export interface Figure {
  data: Partial<Data>[];
  layout: Partial<Layout>;
}

/** `width` in pixels. Points that stand for something of the record carry its id as `customdata`. */
export type Draw = (colours: Palette, width: number) => Figure;

/** Class of the marks of a trace whose points carry ids: Plotly makes it from the trace's `uid`. */
export const LINKED = 'nbcids';

interface Props {
  state: State;
  charts: Charts;
  title: string;
  /** What the chart says, for readers who do not see it; its numbers stand in a table. */
  summary: string;
  height: number;
  draw: Draw;
}

export function Chart({ state, charts, title, summary, height, draw }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const width = useRef(0);
  useEffect(() => {
    const element = place.current as (HTMLDivElement & Partial<PlotlyHTMLElement>) | null;
    if (!element) return;
    let drawn = false;
    let stop = (): void => undefined;
    const show = async (): Promise<void> => {
      if (!width.current) return;
      const colours = palette(element);
      const { data, layout } = draw(colours, width.current);
      const whole = { ...common(colours, width.current, height), ...layout };
      await charts.react(element, data as Data[], whole, { displayModeBar: false, typesetMath: false, doubleClick: false });
      if (!drawn) follow(state, element as PlotlyHTMLElement);
      drawn = true;
      emphasise(element, state.lit.value);
    };
    const soon = (): void => {
      stop();
      stop = nextFrame(element, () => void show());
    };
    const sizes = new ResizeObserver(() => {
      const now = Math.floor(element.clientWidth);
      if (now === width.current) return;
      width.current = now;
      soon();
    });
    sizes.observe(element);
    // The theme's class is set by another effect of the same signal: the colours are read a frame later.
    const stops = [state.host.theme.subscribe(soon), state.lit.subscribe((lit) => emphasise(element, lit))];
    return () => {
      stop();
      sizes.disconnect();
      for (const each of stops) each();
      charts.purge(element);
    };
  }, [charts, draw, height]);
  const save = (): void => {
    const size = { width: width.current, height, scale: 2 };
    if (place.current) void charts.downloadImage(place.current, { format: 'png', filename: `nbcompile ${title}`, ...size });
  };
  return (
    <figure class="nbc-chart">
      <figcaption>
        {title}
        <button type="button" class="nbc-chart-save" aria-label={`${title}: save as PNG`} onClick={save}>PNG</button>
      </figcaption>
      <div ref={place} role="img" aria-label={`${title}: ${summary}`} style={{ height: `${height}px` }} />
    </figure>
  );
}

/** Record's text for a chart, whose labels know some HTML: nothing of it is taken as such. */
export function plain(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

/** An axis in the explorer's tone; no grid unless asked for. */
export function axis(colours: Palette, title = ''): Partial<Layout['xaxis']> {
  return {
    color: colours.quiet, gridcolor: colours.line, linecolor: colours.line, zeroline: false, fixedrange: true, showgrid: false,
    title: { text: title, standoff: 6, font: { size: 11, color: colours.quiet } },
  };
}

function common(colours: Palette, width: number, height: number): Partial<Layout> {
  return {
    width, height, showlegend: false, hovermode: 'closest', dragmode: false,
    paper_bgcolor: colours.bg, plot_bgcolor: colours.bg,
    font: { family: colours.font, size: 11, color: colours.ink },
    hoverlabel: { bgcolor: colours.bg, bordercolor: colours.quiet, font: { family: colours.font, size: 11, color: colours.ink }, align: 'left' },
  };
}

function follow(state: State, element: PlotlyHTMLElement): void {
  const id = (event: PlotMouseEvent): string | null => {
    const held: unknown = event.points[0]?.customdata;
    return typeof held === 'string' ? held : null;
  };
  element.on('plotly_hover', (event) => {
    const found = id(event);
    if (found !== null) state.hover({ ids: [found] });
  });
  element.on('plotly_unhover', () => state.hover(null));
  element.on('plotly_click', (event) => {
    const found = id(event);
    if (found !== null) state.pin({ ids: [found] });
  });
}

/** Marks what is lit in the drawing itself: a new drawing would take the hover label away. */
function emphasise(element: HTMLElement, lit: Lit | null): void {
  for (const mark of element.querySelectorAll<SVGElement>(`.trace${LINKED} .point`)) {
    const datum = (mark as SVGElement & { __data__?: { data?: unknown } }).__data__?.data;
    mark.classList.toggle('nbc-dim', lit !== null && typeof datum === 'string' && !lit.ids.has(datum));
  }
}
