import type { ComponentChildren, RefObject } from 'preact';
import { useEffect, useLayoutEffect, useRef } from 'preact/hooks';
import { Border } from './Border';
import { IconButton } from './code/icons';
import { Away, DetachButton, Detached } from './Detached';
import type { PaneId } from './layout';
import type { State } from './state';

const NAMES: Record<PaneId, string> = { graph: 'the graph', code: 'the code', details: 'the details', all: 'the explorer' };

/** A part of the explorer that can fill the window, stand beside the page, or have a window of its own. */
export function Pane(props: { state: State; pane: PaneId; label: string; className: string; children: ComponentChildren }) {
  const { state, pane, label, className, children } = props;
  const place = useRef<HTMLElement>(null);
  const how = useLift(state, pane, place);
  const away = state.layout.windowOf(pane);
  const style = how === 'beside' ? { '--nbc-side': `${100 * state.layout.side.value}vw` } : {};
  if (away) {
    return (
      <section class={className} aria-label={label}>
        <Away state={state} name={NAMES[pane]} />
        <Detached state={state} away={away} label={label} className={className}>{children}</Detached>
      </section>
    );
  }
  return (
    <section
      ref={place}
      class={`${className} ${how ? `nbc-lifted nbc-lifted-${how}` : ''}`}
      style={style}
      aria-label={label}
      onClick={(event) => pane === 'details' && event.stopPropagation()}
      onKeyDown={(event) => {
        if (event.key !== 'Escape' || !how || event.defaultPrevented) return;
        event.stopPropagation();
        state.layout.restore();
      }}
    >
      {how === 'beside' && <Border state={state} border="side" />}
      {children}
    </section>
  );
}

/**
 * Puts the element above all of the page, where no box around it can cut it off: JupyterLab's cells and the explorer
 * itself contain what is in them.
 */
export function useLift(state: State, pane: PaneId, place: RefObject<HTMLElement>) {
  const how = state.layout.howIs(pane);
  useLayoutEffect(() => {
    const element = place.current;
    if (!element || !how || how === 'window' || !('showPopover' in element)) return undefined;
    element.setAttribute('popover', 'manual');
    element.showPopover();
    return () => {
      if (element.isConnected && element.matches(':popover-open')) element.hidePopover();
      element.removeAttribute('popover');
    };
  }, [how]);
  useEffect(() => {
    if (how !== 'maximised') return undefined;
    // Wherever the focus is: what fills the window is all there is.
    const onKey = (event: KeyboardEvent): void => {
      if (event.key === 'Escape' && !event.defaultPrevented && !(event.target instanceof Node && place.current?.contains(event.target))) {
        state.layout.restore();
      }
    };
    document.addEventListener('keydown', onKey);
    return () => document.removeEventListener('keydown', onKey);
  }, [how]);
  return how;
}

/** The buttons that take a pane out of its place, and put it back; in a window of its own there is only the last. */
export function PaneTools({ state, pane }: { state: State; pane: PaneId }) {
  const { layout } = state;
  const how = layout.howIs(pane);
  const name = NAMES[pane];
  if (how === 'window') return <span class="nbc-pane-tools"><DetachButton state={state} pane={pane} name={name} /></span>;
  return (
    <span class="nbc-pane-tools">
      <DetachButton state={state} pane={pane} name={name} />
      <IconButton
        icon="beside"
        label={how === 'beside' ? `Put ${name} back` : `Open ${name} beside the page`}
        pressed={how === 'beside'}
        press={() => layout.lift(pane, 'beside')}
      />
      <IconButton
        icon={how === 'maximised' ? 'restore' : 'maximise'}
        label={how === 'maximised' ? `Put ${name} back (Escape)` : `Maximise ${name}`}
        pressed={how === 'maximised'}
        press={() => layout.lift(pane, 'maximised')}
      />
    </span>
  );
}
