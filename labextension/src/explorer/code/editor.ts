/** A text in CodeMirror: numbered, coloured, each line linked to something, and editable where that is asked for. */
import { defaultKeymap, history, historyKeymap, indentWithTab } from '@codemirror/commands';
import { bracketMatching, indentUnit, syntaxHighlighting } from '@codemirror/language';
import { Compartment, EditorState, Prec, RangeSet, RangeSetBuilder, StateEffect, StateField, type Extension, type RangeValue } from '@codemirror/state';
import {
  Decoration, drawSelection, EditorView, gutter, GutterMarker, gutterLineClass, keymap, lineNumbers, WidgetType,
} from '@codemirror/view';
import { classHighlighter } from '@lezer/highlight';
import { nextFrame } from '../frame';
import { languageOf } from './languages';

/** What the marks beside a text say, by line from 1. */
export interface Labels {
  /** What a label stands for: `line of the cell`. */
  title: string;
  /** Not lines of the cell, and so not in their colour. */
  quiet?: boolean;
  of: ReadonlyMap<number, string>;
}

export interface Hooks {
  /** The pointer or the cursor is on this line; `null`: left. */
  point(line: number | null): void;
  /** A line was clicked, or Enter pressed in it. */
  choose(line: number): void;
  /** The label beside a line was clicked. */
  chooseLabel(line: number): void;
  /** The text was edited. */
  edited(text: string): void;
  run(): void;
}

export interface Problem {
  /** From 1; `null`: nobody said which. */
  line: number | null;
  text: string;
}

const setLit = StateEffect.define<readonly number[]>();
const setLabels = StateEffect.define<Labels>();
const setProblem = StateEffect.define<Problem | null>();

const litLine = Decoration.line({ class: 'nbc-code-lit' });
const badLine = Decoration.line({ class: 'nbc-code-bad' });

class Band extends GutterMarker {
  override elementClass = 'nbc-code-band';
}
const band = new Band();

class Label extends GutterMarker {
  constructor(
    private readonly text: string,
    private readonly title: string,
    private readonly quiet: boolean,
  ) {
    super();
  }
  override eq(other: Label): boolean {
    return other.text === this.text && other.title === this.title;
  }
  override toDOM(): Node {
    const element = document.createElement('span');
    element.textContent = this.text;
    if (this.quiet) element.className = 'nbc-quiet';
    element.title = `${this.title} ${this.text}`;
    return element;
  }
}

class Message extends WidgetType {
  constructor(private readonly text: string) {
    super();
  }
  override eq(other: Message): boolean {
    return other.text === this.text;
  }
  override toDOM(): HTMLElement {
    const element = document.createElement('div');
    element.className = 'nbc-code-problem';
    element.setAttribute('role', 'alert');
    element.textContent = this.text;
    return element;
  }
}

function marks<T extends RangeValue>(state: EditorState, lines: readonly number[], mark: T): RangeSet<T> {
  const builder = new RangeSetBuilder<T>();
  for (const line of lines) {
    if (line < 1 || line > state.doc.lines) continue;
    const { from } = state.doc.line(line);
    builder.add(from, from, mark);
  }
  return builder.finish();
}

const lit = StateField.define<{ lines: RangeSet<Decoration>; bands: RangeSet<GutterMarker> }>({
  create: () => ({ lines: RangeSet.empty, bands: RangeSet.empty }),
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (effect.is(setLit)) {
        return { lines: marks(transaction.state, effect.value, litLine), bands: marks(transaction.state, effect.value, band) };
      }
    }
    if (!transaction.docChanged) return value;
    return { lines: value.lines.map(transaction.changes), bands: value.bands.map(transaction.changes) };
  },
  provide: (field) => [
    EditorView.decorations.from(field, (value) => value.lines),
    gutterLineClass.from(field, (value) => value.bands),
  ],
});

const problem = StateField.define<RangeSet<Decoration>>({
  create: () => RangeSet.empty,
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(setProblem)) continue;
      const { doc } = transaction.state;
      const line = effect.value?.line;
      if (!effect.value || !line || line > doc.lines) return RangeSet.empty;
      const { from, to } = doc.line(line);
      const below = Decoration.widget({ widget: new Message(effect.value.text), block: true, side: 1 });
      return Decoration.set([badLine.range(from), below.range(to)]);
    }
    return transaction.docChanged ? value.map(transaction.changes) : value;
  },
  provide: (field) => EditorView.decorations.from(field),
});

const labels = StateField.define<RangeSet<GutterMarker>>({
  create: () => RangeSet.empty,
  update(value, transaction) {
    for (const effect of transaction.effects) {
      if (!effect.is(setLabels)) continue;
      const builder = new RangeSetBuilder<GutterMarker>();
      const { doc } = transaction.state;
      for (const [line, text] of [...effect.value.of].sort((a, b) => a[0] - b[0])) {
        if (line >= 1 && line <= doc.lines) builder.add(doc.line(line).from, doc.line(line).from, new Label(text, effect.value.title, effect.value.quiet ?? false));
      }
      return builder.finish();
    }
    return transaction.docChanged ? value.map(transaction.changes) : value;
  },
});

/** Owns one EditorView. */
export class Editor {
  readonly view: EditorView;
  private readonly language = new Compartment();
  private readonly mode = new Compartment();
  private pointed: number | null = null;

  constructor(
    parent: HTMLElement,
    label: string,
    private readonly hooks: Hooks,
  ) {
    this.view = new EditorView({
      parent,
      state: EditorState.create({ extensions: this.extensions(label) }),
    });
  }

  private extensions(label: string): Extension {
    return [
      gutter({
        class: 'nbc-code-labels',
        markers: (view) => view.state.field(labels),
        domEventHandlers: {
          click: (view, block, event) => {
            event.stopPropagation();
            this.hooks.chooseLabel(view.state.doc.lineAt(block.from).number);
            return true;
          },
        },
      }),
      lineNumbers(),
      lit,
      labels,
      problem,
      drawSelection(),
      syntaxHighlighting(classHighlighter),
      EditorState.tabSize.of(2),
      // Within reach of the Tab key in every browser, whether or not it can be edited: else it scrolls by mouse alone.
      EditorView.contentAttributes.of({ 'aria-label': label, tabindex: '0' }),
      this.language.of([]),
      this.mode.of(READING),
      keymap.of(defaultKeymap),
      EditorView.domEventHandlers({
        mousemove: (event) => this.point(this.lineAt(event)),
        mouseleave: () => this.point(null),
        blur: () => this.point(null),
        click: (event) => {
          event.stopPropagation();
          const line = this.lineAt(event);
          if (line !== null && this.reads && this.view.state.selection.main.empty) this.hooks.choose(line);
        },
        keydown: (event) => {
          if (event.key !== 'Enter' || !this.reads) return false;
          this.hooks.choose(this.cursor());
          return true;
        },
      }),
      EditorView.updateListener.of((update) => {
        if (update.docChanged && !this.reads) this.hooks.edited(update.state.doc.toString());
        else if (update.selectionSet && update.view.hasFocus) this.point(this.cursor());
      }),
    ];
  }

  private get reads(): boolean {
    return this.view.state.readOnly;
  }

  private cursor(): number {
    const { state } = this.view;
    return state.doc.lineAt(state.selection.main.head).number;
  }

  private lineAt(event: MouseEvent): number | null {
    const { view } = this;
    const top = event.clientY - view.documentTop;
    if (top < 0 || top > view.contentHeight) return null;
    return view.state.doc.lineAt(view.lineBlockAtHeight(top).from).number;
  }

  private lit: readonly number[] = [];

  private point(line: number | null): void {
    if (line === this.pointed) return;
    this.pointed = line;
    this.hooks.point(line);
  }

  get text(): string {
    return this.view.state.doc.toString();
  }

  show(text: string, language: string): void {
    this.lit = [];
    this.view.dispatch({
      changes: { from: 0, to: this.view.state.doc.length, insert: text },
      effects: [this.language.reconfigure(languageOf(language)), setLit.of([]), setProblem.of(null)],
      selection: { anchor: 0 },
    });
    this.view.scrollDOM.scrollTop = 0;
  }

  /** Puts another text in place of the one that is edited, so that undo brings that back. */
  replace(text: string): void {
    if (text !== this.text) this.view.dispatch({ changes: { from: 0, to: this.view.state.doc.length, insert: text } });
  }

  label(all: Labels): void {
    this.view.dispatch({ effects: setLabels.of(all) });
  }

  /** Lights these lines, which are in order. */
  light(lines: readonly number[]): void {
    // A dispatch costs a layout, and most of what is pointed at has no part in this kernel.
    if (lines.length === this.lit.length && lines.every((line, place) => line === this.lit[place])) return;
    this.lit = lines;
    this.view.dispatch({ effects: setLit.of(lines) });
  }

  problem(found: Problem | null): void {
    this.view.dispatch({ effects: setProblem.of(found) });
    if (found?.line) this.reveal([found.line]);
  }

  edit(on: boolean): void {
    const run = Prec.highest(keymap.of([{ key: 'Mod-Enter', run: () => (this.hooks.run(), true) }]));
    const editing = [history(), bracketMatching(), indentUnit.of('  '), run, keymap.of([...historyKeymap, indentWithTab])];
    this.view.dispatch({ effects: this.mode.reconfigure(on ? editing : READING) });
    if (on) this.view.focus();
  }

  /** Scrolls to the first of these lines, unless one of them is in sight. Nothing but the text is scrolled. */
  reveal(lines: readonly number[]): void {
    // A text that has only now been shown has no height before the next frame.
    nextFrame(this.view.dom, () => this.scrollTo(lines));
  }

  private scrollTo(lines: readonly number[]): void {
    const { view } = this;
    const first = lines[0];
    if (!view.dom.isConnected || first === undefined || first > view.state.doc.lines) return;
    const { scrollTop, clientHeight } = view.scrollDOM;
    const block = (line: number): { top: number; bottom: number } => view.lineBlockAt(view.state.doc.line(line).from);
    const seen = (line: number): boolean => block(line).top >= scrollTop && block(line).bottom <= scrollTop + clientHeight;
    if (lines.some((line) => line <= view.state.doc.lines && seen(line))) return;
    view.scrollDOM.scrollTop = Math.max(0, block(first).top - clientHeight / 3);
  }

  destroy(): void {
    this.view.destroy();
  }
}

const READING: Extension = [EditorState.readOnly.of(true)];
