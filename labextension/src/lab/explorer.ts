/** The explorer as a Lumino widget: an output of a cell, the side panel, a document. */
import { signal, type ReadonlySignal, type Signal } from '@preact/signals';
import { Widget } from '@lumino/widgets';
import type { Charts, Host, Kernel, Theme } from '../explorer/host';
import type { Explorer } from '../explorer/mount';
import { watchTheme } from '../hosts/theme';

const SUPPRESS = 'data-lm-suppress-shortcuts';
let theme: ReadonlySignal<Theme> | null = null;

export class ExplorerWidget extends Widget {
  private explorer: Explorer | null = null;
  private shown: unknown = null;
  private alone = '';
  private readonly host: Host;

  /** `open`: whether more than the answer is shown, kept by whoever makes this. */
  constructor(kernel: ReadonlySignal<Kernel | null>, open: Signal<boolean> = signal(true)) {
    super();
    this.addClass('nbc-widget');
    keepKeys();
    this.host = {
      theme: (theme ??= watchTheme()),
      kernel,
      needs: "no kernel: run the notebook's kernel and this cell again",
      open,
      charts,
    };
  }

  /** Shows this payload, in the place of the last one. */
  async draw(payload: unknown): Promise<void> {
    if (this.shown === payload && this.explorer) return this.explorer.ready;
    this.shown = payload;
    if (this.explorer) {
      this.explorer.update(payload);
      return this.explorer.ready;
    }
    const { mount } = await import('../explorer/mount');
    if (this.isDisposed || this.shown !== payload) return;
    const element = document.createElement('div');
    this.node.replaceChildren(element);
    this.explorer = mount(element, payload, this.host);
    await this.explorer.ready;
  }

  /** Shows a payload and how it differs from others, which are taken as what was before it. */
  async compare(payload: unknown, others: readonly unknown[]): Promise<void> {
    await this.draw(payload);
    const { compare } = await import('../explorer/compare/sources');
    if (this.shown === payload && this.explorer?.state) await compare(this.explorer.state, others);
  }

  /** Closes the other explorers of what is shown here, once a record: one that is open is enough. */
  async closeOthers(): Promise<void> {
    const { mounted } = await import('../explorer/compare/sources');
    const own = this.explorer?.state;
    if (!own || own.data.record.id === this.alone) return;
    this.alone = own.data.record.id;
    const alike = mounted.peek().filter((each) => each !== own && each.data.record.id === this.alone);
    for (const each of alike) each.open.value = false;
  }

  /** Shows a sentence instead. */
  say(text: string): void {
    this.shown = null;
    this.explorer?.dispose();
    this.explorer = null;
    const element = document.createElement('p');
    element.className = 'nbc-widget-note';
    element.textContent = text;
    this.node.replaceChildren(element);
  }

  override dispose(): void {
    this.explorer?.dispose();
    this.explorer = null;
    super.dispose();
  }
}

async function charts(): Promise<Charts> {
  const module = await import('plotly.js-basic-dist-min');
  return module.default;
}

let kept = false;

/**
 * Keys pressed in an explorer are its own: a notebook in command mode would take Enter, arrows and letters
 * from it. Those with a modifier (run the cell, save) stay JupyterLab's.
 */
function keepKeys(): void {
  if (kept) return;
  kept = true;
  const onKey = (event: KeyboardEvent): void => {
    const explorer = event.target instanceof Element ? event.target.closest('.nbc-widget') : null;
    const plain = !(event.ctrlKey || event.metaKey || event.altKey || (event.shiftKey && event.key === 'Enter'));
    explorer?.toggleAttribute(SUPPRESS, plain);
  };
  // On the window, so that it is asked before JupyterLab's own listener on the document.
  window.addEventListener('keydown', onKey, true);
}
