/**
 * What became of each line, in the editor of the cell itself: marks in a gutter, tints, cards, and lines that
 * light up with the explorer. Everything comes from the cell's outputs, so it is there without a kernel;
 * once the cell is edited the marks turn grey, for they tell of what was compiled.
 */
import { effect, signal } from '@preact/signals';
import type { ICellModel, ICodeCellModel } from '@jupyterlab/cells';
import { Compartment, RangeSet, StateEffect, StateField, type EditorState, type Extension } from '@codemirror/state';
import {
  Decoration, EditorView, gutter, GutterMarker, hoverTooltip, ViewPlugin, type DecorationSet, type Tooltip, type ViewUpdate,
} from '@codemirror/view';
import { card } from './card';
import type { LineMark, Marks } from './lines';
import { payloadOf } from './outputs';
import { settings } from './settings';

/** A bubbling event from the editor: the cursor is on this line of a compiled cell (`null`: on none). */
export const CURSOR_EVENT = 'nbcompile:cursor';

/** Lines that are lit; `null`: nothing is. */
export const setLit = StateEffect.define<readonly number[] | null>();
const setMarks = StateEffect.define<Marks | null>();

interface Shown {
  marks: Marks | null;
  /** The cell was edited since. */
  stale: boolean;
  lines: DecorationSet;
  gutter: RangeSet<GutterMarker>;
}

const NOTHING: Shown = { marks: null, stale: false, lines: Decoration.none, gutter: RangeSet.empty };
// Shapes, so that the two that matter differ without their colours.
const SYMBOLS: Record<string, string> = { break: '◆', fallback: '▲' };

class Mark extends GutterMarker {
  constructor(private readonly mark: LineMark) {
    super();
  }

  override eq(other: Mark): boolean {
    return other.mark === this.mark;
  }

  override toDOM(): HTMLElement {
    const element = document.createElement('div');
    element.className = `nbc-mark nbc-mark-${this.mark.fate}`;
    element.textContent = SYMBOLS[this.mark.fate] ?? '';
    element.title = [this.mark.summary, ...this.mark.reasons.map((each) => each.text)].join('\n');
    return element;
  }
}

const field = StateField.define<Shown>({
  create: () => NOTHING,
  update(shown, transaction) {
    const given = transaction.effects.find((each) => each.is(setMarks));
    if (given) return made(given.value as Marks | null, transaction.state);
    if (!shown.marks || !transaction.docChanged) return shown;
    const fresh = made(shown.marks, transaction.state);
    if (!fresh.stale) return fresh;
    const { changes } = transaction;
    return { ...fresh, lines: shown.lines.map(changes), gutter: shown.gutter.map(changes) };
  },
  provide: (self) => [
    EditorView.decorations.from(self, (shown) => shown.lines),
    EditorView.editorAttributes.from(self, attributes),
  ],
});

const lit = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(lines, transaction) {
    const given = transaction.effects.find((each) => each.is(setLit));
    if (!given) return lines.map(transaction.changes);
    const { doc } = transaction.state;
    // Of a cell that was edited since, nobody knows which lines are meant.
    const meant = transaction.state.field(field).stale ? [] : ((given.value as readonly number[] | null) ?? []);
    const numbers = [...new Set(meant)].filter((line) => line >= 1 && line <= doc.lines);
    return Decoration.set(numbers.map((line) => Decoration.line({ class: 'nbc-lit-line' }).range(doc.line(line).from)), true);
  },
  provide: (self) => EditorView.decorations.from(self),
});

function made(marks: Marks | null, state: EditorState): Shown {
  if (!marks) return NOTHING;
  if (marks.source.trimEnd() !== state.doc.toString().trimEnd()) return { ...NOTHING, marks, stale: true };
  const at = (mark: LineMark): number => state.doc.line(mark.line).from;
  const there = marks.lines.filter(({ line }) => line >= 1 && line <= state.doc.lines);
  return {
    marks,
    stale: false,
    lines: Decoration.set(there.map((mark) => Decoration.line({ class: `nbc-marked-line nbc-marked-${mark.fate}` }).range(at(mark))), true),
    gutter: RangeSet.of(there.map((mark) => new Mark(mark).range(at(mark))), true),
  };
}

function attributes({ marks, stale }: Shown): Record<string, string> {
  return marks ? { class: `nbc-marked ${stale ? 'nbc-stale' : ''}` } : {};
}

const gutterPlace = new Compartment();
const gutterMarks = gutter({ class: 'nbc-gutter', markers: (view) => view.state.field(field).gutter });

const cards = hoverTooltip((view, place): Tooltip | null => {
  const { marks, stale } = view.state.field(field);
  if (!marks || stale || !settings.cards.value) return null;
  const line = view.state.doc.lineAt(place);
  const mark = marks.lines.find((each) => each.line === line.number);
  return mark ? { pos: line.from, end: line.to, above: true, create: () => ({ dom: card(mark) }) } : null;
});

/** What an editor needs to mark the lines of the cell it stands in. */
export function marksExtension(model: ICellModel): Extension {
  if (model.type !== 'code') return [];
  const keeper = ViewPlugin.define((view) => new Keeper(view, model as ICodeCellModel));
  return [field, lit, gutterPlace.of([]), cards, keeper];
}

/** Follows the cell's outputs, the settings and the cursor. */
class Keeper {
  private readonly changed = signal(0);
  private readonly stop: () => void;
  private told: number | null = null;
  // Kept, since a model that is disposed of has none.
  private readonly outputs: ICodeCellModel['outputs'];

  constructor(
    private readonly view: EditorView,
    { outputs }: ICodeCellModel,
  ) {
    this.outputs = outputs;
    outputs.changed.connect(this.onOutputs, this);
    this.stop = effect(() => {
      void this.changed.value;
      const { marks, tint } = { marks: settings.marks.value, tint: settings.tint.value };
      const payload = payloadOf(outputs);
      void this.mark(payload, marks, tint);
    });
  }

  update(update: ViewUpdate): void {
    if (update.selectionSet || update.focusChanged || update.docChanged) this.tell();
  }

  destroy(): void {
    this.stop();
    this.outputs.changed.disconnect(this.onOutputs, this);
  }

  private onOutputs(): void {
    this.changed.value++;
  }

  private async mark(payload: unknown, marks: boolean, tint: boolean): Promise<void> {
    // Later than now in any case: a view may not change while it is being made.
    const read = payload ? await (await import('./lines')).marksOf(payload) : await Promise.resolve(null);
    if (payloadOf(this.outputs) !== payload) return;
    if (!read && !this.view.state.field(field).marks) return;
    this.view.dispatch({
      effects: [setMarks.of(read), setLit.of(null), gutterPlace.reconfigure(read && marks ? gutterMarks : [])],
    });
    this.view.dom.classList.toggle('nbc-tinted', tint);
  }

  private tell(): void {
    const { state, hasFocus } = this.view;
    const { marks, stale } = state.field(field);
    const there = marks !== null && !stale && hasFocus && settings.cursor.value;
    const line = there ? state.doc.lineAt(state.selection.main.head).number : null;
    if (line === this.told) return;
    this.told = line;
    const event = new CustomEvent(CURSOR_EVENT, { detail: { line }, bubbles: true });
    // Not within the update: who listens may change this view.
    queueMicrotask(() => this.view.dom.dispatchEvent(event));
  }
}
