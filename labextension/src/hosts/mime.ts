/** JupyterLab's and Notebook 7's renderer of records: outputs of cells, and files that end in `.nbcompile.json`. */
import { computed, effect, signal } from '@preact/signals';
import type { Message } from '@lumino/messaging';
import type { IRenderMime } from '@jupyterlab/rendermime-interfaces';
import { findKernel, MIME } from '../lab/attach';
import { ExplorerWidget } from '../lab/explorer';
import { compileIcon } from '../lab/icons';

/** Whether the explorer of a cell was left open: running it again gives another output, and so another one. */
const left = new WeakMap<Element, boolean>();

class Renderer extends ExplorerWidget implements IRenderMime.IRenderer {
  private readonly place;
  private readonly open;
  private keep: () => void = () => undefined;

  constructor() {
    const place = signal<HTMLElement | null>(null);
    const open = signal(false);
    super(computed(() => (place.value && findKernel.value?.(place.value).value) ?? null), open);
    this.place = place;
    this.open = open;
  }

  renderModel(model: IRenderMime.IMimeModel): Promise<void> {
    return this.draw(parsed(model.data[MIME]));
  }

  protected override onAfterAttach(message: Message): void {
    super.onAfterAttach(message);
    this.place.value = this.node;
    const cell = this.node.closest('.jp-Cell');
    // A document has no cell that the explorer stands below: it is all there is.
    if (!cell || left.get(cell)) this.open.value = true;
    this.keep();
    this.keep = effect(() => {
      const open = this.open.value;
      if (cell) left.set(cell, open);
    });
  }

  protected override onBeforeDetach(message: Message): void {
    this.place.value = null;
    this.keep();
    super.onBeforeDetach(message);
  }
}

/** A document comes as its text, an output as its value. */
function parsed(data: unknown): unknown {
  if (typeof data !== 'string') return data;
  try {
    return JSON.parse(data);
  } catch {
    return null; // told by the explorer: it is no record
  }
}

const extension: IRenderMime.IExtension = {
  id: 'nbcompile:mime',
  description: 'Shows nbcompile records.',
  rendererFactory: { safe: true, mimeTypes: [MIME], createRenderer: () => new Renderer() },
  // Before the renderer of widgets (-10) and of HTML.
  rank: -20,
  dataType: 'string',
  fileTypes: [
    {
      name: 'nbcompile',
      displayName: 'nbcompile record',
      mimeTypes: [MIME],
      extensions: ['.nbcompile.json'],
      fileFormat: 'text',
      icon: { name: compileIcon.name, svgstr: compileIcon.svgstr },
    },
  ],
  documentWidgetFactoryOptions: {
    name: 'nbcompile',
    label: 'nbcompile explorer',
    primaryFileType: 'nbcompile',
    fileTypes: ['nbcompile'],
    defaultFor: ['nbcompile'],
  },
};

export default extension;
