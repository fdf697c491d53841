import { useRef } from 'preact/hooks';
import { LOWEST, type BorderId, type Layout } from './layout';
import type { State } from './state';

const STEP = 0.05;
const STEP_PIXELS = 40;
const LABELS: Record<BorderId, string> = {
  panes: 'border between graph and code', height: 'lower border of graph and code', side: 'border to the page',
};

/** A border that is dragged, or moved by arrow keys; a double click puts it back. */
export function Border({ state, border }: { state: State; border: BorderId }) {
  const { layout } = state;
  const place = useRef<HTMLDivElement>(null);
  const upright = border !== 'height';
  const drag = (event: PointerEvent): void => {
    if (place.current?.hasPointerCapture(event.pointerId)) moveTo(layout, border, place.current, event.clientX, event.clientY);
  };
  return (
    <div
      ref={place}
      class={`nbc-border nbc-border-${border}`}
      role="separator"
      tabIndex={0}
      aria-orientation={upright ? 'vertical' : 'horizontal'}
      aria-label={`${LABELS[border]}: arrow keys move it`}
      title="drag; a double click puts it back"
      {...values(layout, border)}
      onPointerDown={(event) => {
        if (event.button !== 0) return;
        event.preventDefault();
        event.currentTarget.focus();
        event.currentTarget.setPointerCapture(event.pointerId);
      }}
      onPointerMove={drag}
      onClick={(event) => event.stopPropagation()}
      onDblClick={() => reset(layout, border)}
      onKeyDown={(event) => {
        const by = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
        if (by === undefined || !place.current) return;
        event.preventDefault();
        event.stopPropagation();
        step(layout, border, place.current, by);
      }}
    />
  );
}

function values(layout: Layout, border: BorderId): Record<string, number> {
  if (border === 'height') return { 'aria-valuenow': layout.height.value ?? 440, 'aria-valuemin': LOWEST, 'aria-valuemax': 2400 };
  const part = border === 'panes' ? layout.split.value : 1 - layout.side.value;
  return { 'aria-valuenow': Math.round(100 * part), 'aria-valuemin': 15, 'aria-valuemax': 85 };
}

function moveTo(layout: Layout, border: BorderId, line: HTMLElement, x: number, y: number): void {
  if (border === 'side') {
    layout.setSide(1 - x / window.innerWidth);
    return;
  }
  const before = line.previousElementSibling?.getBoundingClientRect();
  const around = line.parentElement?.getBoundingClientRect();
  if (!before || !around) return;
  if (border === 'height' || isStacked(line)) layout.setHeight(y - before.top);
  else layout.setSplit((x - around.left) / around.width);
}

function step(layout: Layout, border: BorderId, line: HTMLElement, by: number): void {
  if (border === 'side') layout.setSide(layout.side.value - by * STEP);
  else if (border === 'panes' && !isStacked(line)) layout.setSplit(layout.split.value + by * STEP);
  else layout.setHeight((line.previousElementSibling?.getBoundingClientRect().height ?? 0) + by * STEP_PIXELS);
}

function reset(layout: Layout, border: BorderId): void {
  if (border === 'side') layout.setSide(0.5);
  else if (border === 'panes') layout.setSplit(0.5);
  if (border !== 'side') layout.setHeight(null);
}

/** Whether what the border lies between stands one above the other. */
function isStacked(line: HTMLElement): boolean {
  const [above, below] = [line.previousElementSibling, line.nextElementSibling].map((each) => each?.getBoundingClientRect());
  return above !== undefined && below !== undefined && below.top >= above.bottom;
}
