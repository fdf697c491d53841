/** Between the editor of a cell and the explorers of its outputs, both ways, through events that bubble. */
import { EditorView } from '@codemirror/view';
import { FOCUS_EVENT, LINE_EVENT, type FocusDetail, type LineDetail } from '../explorer/host';
import { CURSOR_EVENT, setLit } from './marks';

const CELL = '.jp-CodeCell';

/** Starts linking, for as long as the page lives. */
export function link(): void {
  document.addEventListener(FOCUS_EVENT, (event) => {
    const cell = cellOf(event);
    if (cell) light(cell, (event as CustomEvent<FocusDetail>).detail.lines);
  });
  document.addEventListener(CURSOR_EVENT, (event) => {
    const cell = cellOf(event);
    if (cell) point(cell, (event as CustomEvent<LineDetail>).detail.line);
  });
}

/** Lights lines in the editor within `cell`. */
export function light(cell: Element, lines: readonly number[] | null): void {
  const editor = cell.querySelector<HTMLElement>('.jp-InputArea-editor .cm-editor');
  const view = editor && EditorView.findFromDOM(editor);
  view?.dispatch({ effects: setLit.of(lines) });
}

/** Lights what came from this line in every explorer within `place`. */
export function point(place: Element, line: number | null): void {
  for (const explorer of place.querySelectorAll('.nbc')) {
    explorer.dispatchEvent(new CustomEvent<LineDetail>(LINE_EVENT, { detail: { line } }));
  }
}

function cellOf(event: Event): Element | null {
  return event.target instanceof Element ? event.target.closest(CELL) : null;
}
