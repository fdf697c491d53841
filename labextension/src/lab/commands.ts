/** The commands: in the palette, on the cell's toolbar, in the context menu of an explorer. */
import type { JupyterFrontEnd } from '@jupyterlab/application';
import { MainAreaWidget, Notification, showErrorMessage, type ICommandPalette } from '@jupyterlab/apputils';
import { CodeCell } from '@jupyterlab/cells';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { bytes } from '../explorer/units';
import { Beside, type Actions, type Place } from './beside';
import { choose } from './dialog';
import { compileIcon, pinIcon } from './icons';
import { payloadOf } from './outputs';
import { pin } from './pins';
import { clearCache, contestants, load } from './session';
import { compared, magicLine, withCompare, withLine, withMagic } from './source';

export const COMPILE = 'nbcompile:compile-cell';
const COMPARE = 'nbcompile:compare';
const CLEAR = 'nbcompile:clear-cache';
const BESIDE = 'nbcompile:show-beside';
const PIN = 'nbcompile:pin';
/** Of the doctor's button (`nbcompile/notebook/doctoring.py`), which JupyterLab's command linker presses. */
const WRITE = 'nbcompile:write-line';

/** `main`: whether the shell has a main area that more than the notebook can be put into. */
export function addCommands(app: JupyterFrontEnd, tracker: INotebookTracker, palette: ICommandPalette | null, main: boolean): void {
  const { commands } = app;
  const actions: Actions = { pin, openInMain: main ? (place) => openInMain(app, tracker, actions, place) : null };
  let beside: Beside | null = null;
  const isCode = (): boolean => here(tracker) !== null;

  commands.addCommand(COMPILE, {
    label: 'Compile this cell',
    caption: 'Run this cell with %%compile and show what became of it',
    icon: compileIcon,
    isEnabled: isCode,
    isVisible: isCode,
    execute: () => guarded('This cell was not compiled', () => run(app, tracker, withMagic)),
  });
  commands.addCommand(COMPARE, {
    label: 'Compare…',
    caption: 'Time this cell with several backends and modes',
    isEnabled: isCode,
    execute: () => guarded('This cell was not compared', () => compare(app, tracker)),
  });
  commands.addCommand(CLEAR, {
    label: 'Clear cache',
    caption: 'Remove all compiled code that is stored on the machine of the kernel',
    isEnabled: () => tracker.currentWidget !== null,
    execute: () => guarded('The cache was not cleared', () => clear(tracker)),
  });
  commands.addCommand(BESIDE, {
    label: 'Show explorer beside the notebook',
    icon: compileIcon,
    isEnabled: () => tracker.currentWidget !== null,
    execute: () => {
      if (!beside || beside.isDisposed) {
        beside = new Beside(tracker, actions);
        beside.id = 'nbcompile-beside';
      }
      if (!beside.isAttached) app.shell.add(beside, 'right', { rank: 900 });
      app.shell.activateById(beside.id);
    },
  });
  commands.addCommand(PIN, {
    label: 'Pin this compilation',
    caption: 'Put it aside, to compare it with others',
    icon: pinIcon,
    isEnabled: () => payloadHere(tracker) !== null,
    execute: () => {
      const payload = payloadHere(tracker);
      if (payload) pin(payload);
      return commands.execute(BESIDE);
    },
  });
  commands.addCommand(WRITE, {
    label: 'Write this line into the cell',
    isEnabled: isCode,
    execute: (given) => {
      const shared = here(tracker)?.cell.model.sharedModel;
      if (shared && typeof given.line === 'string') shared.setSource(withLine(shared.getSource(), given.line));
    },
  });
  // Whether they are enabled depends on the cell.
  tracker.activeCellChanged.connect(() => commands.notifyCommandChanged());
  for (const command of [COMPILE, COMPARE, CLEAR, BESIDE, PIN]) palette?.addItem({ command, category: 'nbcompile' });
}

/** The code cell that is active in the notebook shown. */
function here(tracker: INotebookTracker): Place | null {
  const { currentWidget: panel, activeCell: cell } = tracker;
  return panel && cell instanceof CodeCell ? { panel, cell } : null;
}

function payloadHere(tracker: INotebookTracker): object | null {
  const place = here(tracker);
  return place && payloadOf(place.cell.model.outputs);
}

async function run(app: JupyterFrontEnd, tracker: INotebookTracker, change: (source: string) => string): Promise<void> {
  const place = here(tracker);
  if (!place || !(await load(place.panel))) return;
  const shared = place.cell.model.sharedModel;
  const [source, changed] = [shared.getSource(), change(shared.getSource())];
  if (changed !== source) shared.setSource(changed);
  await app.commands.execute('notebook:run-cell');
}

async function compare(app: JupyterFrontEnd, tracker: INotebookTracker): Promise<void> {
  const place = here(tracker);
  if (!place || !(await load(place.panel))) return;
  const line = magicLine(place.cell.model.sharedModel.getSource()) ?? '';
  const names = await choose(await contestants(place.panel), compared(line));
  if (names) await run(app, tracker, (source) => withCompare(source, names));
}

async function clear(tracker: INotebookTracker): Promise<void> {
  if (!tracker.currentWidget) return;
  const freed = await clearCache(tracker.currentWidget);
  Notification.success(`nbcompile's cache is empty: ${bytes(freed)} freed.`, { autoClose: 4000 });
}

function openInMain(app: JupyterFrontEnd, tracker: INotebookTracker, actions: Actions, place: Place): void {
  const id = `nbcompile-explorer-${place.cell.model.id}`;
  if ([...app.shell.widgets('main')].some((each) => each.id === id)) {
    app.shell.activateById(id);
    return;
  }
  const widget = new MainAreaWidget({ content: new Beside(tracker, actions, place) });
  widget.id = id;
  widget.title.label = 'Explorer';
  widget.title.icon = compileIcon;
  app.shell.add(widget, 'main', { mode: 'split-right', ref: place.panel.id });
}

async function guarded(title: string, action: () => Promise<void>): Promise<void> {
  try {
    await action();
  } catch (error) {
    await showErrorMessage(title, error instanceof Error ? error.message : String(error));
  }
}
