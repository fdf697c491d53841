/** Puts a rewrite of a cell into the notebook, where an explorer asks for it. */
import { CodeCell } from '@jupyterlab/cells';
import type { INotebookTracker } from '@jupyterlab/notebook';
import { APPLY_EVENT, type ApplyDetail } from '../explorer/host';

/** Starts listening, for as long as the page lives. */
export function applyRewrites(tracker: INotebookTracker): void {
  document.addEventListener(APPLY_EVENT, (event) => {
    const asked = event as CustomEvent<ApplyDetail>;
    const cell = cellOf(tracker, asked);
    if (!cell) return;
    event.preventDefault();
    const shared = cell.model.sharedModel;
    const other = asked.detail.cell;
    // A cell that was edited since is not what was tried.
    if (shared.getSource().trimEnd() !== asked.detail.before.trimEnd()) {
      asked.detail.said = `${other || 'The cell'} has changed since it ran: run ${other ? 'both' : 'it'} again first.`;
      return;
    }
    shared.setSource(asked.detail.after.trimEnd());
    asked.detail.said = other ? `Written into ${other}: run it, then this cell.` : 'Written into the cell: run it.';
  });
}

/**
 * The cell whose output this explorer is; of one beside the notebook, the cell with the text that it is of. Where another cell
 * is to be written, that one: no cell with its text is left if it was edited since, and then the explorer's own stands for it.
 */
function cellOf(tracker: INotebookTracker, { target, detail }: CustomEvent<ApplyDetail>): CodeCell | null {
  if (!(target instanceof Node)) return null;
  const panels = [tracker.currentWidget, tracker.find(({ node }) => node.contains(target))];
  const cells = panels.flatMap((panel) => panel?.content.widgets ?? []).filter((cell): cell is CodeCell => cell instanceof CodeCell);
  const own = cells.find((cell) => cell.node.contains(target));
  const asked = cells.find((cell) => cell !== own && cell.model.sharedModel.getSource().trimEnd() === detail.before.trimEnd());
  return (detail.cell ? asked : null) ?? own ?? asked ?? null;
}
