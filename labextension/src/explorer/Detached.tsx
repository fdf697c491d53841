/**
 * A pane in a window of its own, for a second screen. It is drawn there by this page's script from the same state:
 * what is lit in one window is lit in the other, and in the notebook's cell.
 */
import { useSignal } from '@preact/signals';
import { render, type ComponentChildren } from 'preact';
import { useLayoutEffect, useRef } from 'preact/hooks';
import { IconButton } from './code/icons';
import type { PaneId } from './layout';
import type { State } from './state';

const SIZE = 'popup,width=1100,height=800';

/** Asks for a window, which only a click may: `false` where the browser or the page's frame gives none. */
function detach(state: State, pane: PaneId): boolean {
  const away = window.open('', '', SIZE);
  if (!away) return false;
  state.layout.detach(pane, away);
  return true;
}

/** Draws the children in the window, and nothing where it stands itself. */
export function Detached(props: { state: State; away: Window; label: string; className: string; children: ComponentChildren }) {
  const { state, away, label, className, children } = props;
  const title = `${state.data.scene?.title || state.data.record.id}: ${label}`;
  const dark = state.host.theme.value === 'dark';
  const root = useRef<HTMLElement | null>(null);
  useLayoutEffect(() => dress(away.document, title), [away, dark, title]);
  useLayoutEffect(() => {
    const element = away.document.createElement('main');
    away.document.body.replaceChildren(element);
    root.current = element;
    const gone = (): void => {
      if (state.layout.lifted.peek()?.away === away) state.layout.restore();
    };
    const close = (): void => away.close();
    away.addEventListener('pagehide', gone);
    window.addEventListener('pagehide', close);
    return () => {
      away.removeEventListener('pagehide', gone);
      window.removeEventListener('pagehide', close);
      render(null, element);
      away.close();
    };
  }, [away]);
  useLayoutEffect(() => {
    if (!root.current) return;
    root.current.className = dark ? 'nbc nbc-dark' : 'nbc';
    render(
      <div
        class={`${className} nbc-lifted nbc-lifted-window`}
        onClick={() => state.pin(null)}
        onKeyDown={(event) => event.key === 'Escape' && state.pin(null)}
      >
        {children}
      </div>,
      root.current,
    );
  });
  return null;
}

/** The page's look: its styles, and the marks of its theme that they go by. */
function dress(to: Document, title: string): void {
  const from = document;
  to.title = title;
  for (const [here, there] of [[from.documentElement, to.documentElement], [from.body, to.body]] as const) {
    for (const { name, value } of here.attributes) {
      if (name === 'class' || name === 'lang' || name.startsWith('data-')) there.setAttribute(name, value);
    }
  }
  const styles = [...from.querySelectorAll<HTMLElement>('style, link[rel="stylesheet"]')].map((each) => {
    const copy = to.importNode(each, true);
    if (each instanceof HTMLLinkElement) copy.setAttribute('href', each.href);
    return copy;
  });
  for (const old of to.head.querySelectorAll('style, link')) old.remove();
  to.head.prepend(...styles);
}

/** What is left where a pane was that has a window of its own. */
export function Away({ state, name }: { state: State; name: string }) {
  return (
    <p class="nbc-empty">
      In a window of its own: {name}.{' '}
      <button type="button" class="nbc-button" onClick={() => state.layout.restore()}>Put it back</button>
    </p>
  );
}

/** The button that opens the window; where none opens, it says so. */
export function DetachButton({ state, pane, name }: { state: State; pane: PaneId; name: string }) {
  const refused = useSignal(false);
  const away = state.layout.windowOf(pane) !== null;
  return (
    <>
      {refused.value && <span class="nbc-quiet" role="status">no window was opened: allow pop-ups for this page</span>}
      <IconButton
        icon="window"
        label={away ? `Put ${name} back` : `Open ${name} in a window of its own`}
        pressed={away}
        press={() => {
          if (away) state.layout.restore();
          else refused.value = !detach(state, pane);
        }}
      />
    </>
  );
}
