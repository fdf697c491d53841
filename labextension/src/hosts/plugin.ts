/** The JupyterLab plugin: what stands around the explorer in a notebook. The renderer (mime.ts) works without it. */
import { computed } from '@preact/signals';
import { ILabShell, type JupyterFrontEnd, type JupyterFrontEndPlugin } from '@jupyterlab/application';
import { ICommandPalette } from '@jupyterlab/apputils';
import type { ICellModel } from '@jupyterlab/cells';
import { EditorExtensionRegistry, IEditorExtensionRegistry } from '@jupyterlab/codemirror';
import { INotebookTracker } from '@jupyterlab/notebook';
import { ISettingRegistry } from '@jupyterlab/settingregistry';
import { applyRewrites } from '../lab/applying';
import { findKernel } from '../lab/attach';
import { addCommands } from '../lab/commands';
import { kernelOf } from '../lab/kernel';
import { link } from '../lab/linking';
import { magicExtension } from '../lab/magic';
import { marksExtension } from '../lab/marks';
import { follow, PLUGIN } from '../lab/settings';

const plugin: JupyterFrontEndPlugin<void> = {
  id: PLUGIN,
  description: 'Marks in compiled cells, the explorer beside the notebook, commands.',
  autoStart: true,
  requires: [INotebookTracker, IEditorExtensionRegistry],
  optional: [ICommandPalette, ISettingRegistry, ILabShell],
  activate,
};

function activate(
  app: JupyterFrontEnd,
  tracker: INotebookTracker,
  editors: IEditorExtensionRegistry,
  palette: ICommandPalette | null,
  registry: ISettingRegistry | null,
  lab: ILabShell | null,
): void {
  editors.addExtension({
    name: 'nbcompile:cell',
    factory: ({ model }) => {
      const cell = model as ICellModel;
      return EditorExtensionRegistry.createImmutableExtension([magicExtension(cell), marksExtension(cell)]);
    },
  });
  link();
  applyRewrites(tracker);
  findKernel.value = (element) => {
    const panel = tracker.find(({ node }) => node.contains(element));
    return panel ? kernelOf(panel.sessionContext) : computed(() => null);
  };
  addCommands(app, tracker, palette, lab !== null);
  if (registry) follow(registry).catch((error: unknown) => console.error('nbcompile: its settings cannot be read.', error));
}

export default plugin;
