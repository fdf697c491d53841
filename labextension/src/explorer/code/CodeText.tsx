import { useSignalEffect } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import type { Kernel } from '../../record/generated/record';
import type { Text } from '../../record/generated/scene';
import { generated } from '../../record/links';
import type { State } from '../state';
import { linesLabel } from '../units';
import { Editor, type Hooks, type Labels, type Problem } from './editor';
import { listingOf, type Listing } from './listing';

/** An edit of the text that is shown. */
export interface Editing {
  text: string;
  /** How often the text was put back to what it was at first. */
  resets: number;
  change(text: string): void;
  run(): void;
  problem: Problem | null;
}

interface Props {
  state: State;
  kernel: Kernel;
  text: Text;
  source: string;
  /** The lines to show, where they are known without the scene. */
  listing?: Listing | undefined;
  /** Whether texts made from this one are shown: then each of its lines can be pointed at. */
  several: boolean;
  editing: Editing | null;
}

/** One text of a kernel, each line linked to what it was made from. Made anew for another text. */
export function CodeText(props: Props) {
  const { state, kernel, text, source, editing } = props;
  const place = useRef<HTMLDivElement>(null);
  const editor = useRef<Editor | null>(null);
  const listing = useMemo(() => props.listing ?? listingOf(source, text), []);
  const lines = useRef<Lines | null>(null);
  const now = useRef(props);
  now.current = props;

  useEffect(() => {
    if (!place.current) return undefined;
    const made = new Editor(place.current, `${text.title} of ${kernel.name}`, hooks(now, lines));
    editor.current = made;
    lines.current = new Lines(state, kernel, listing, () => now.current.several);
    made.show(now.current.editing?.text ?? listing.text, text.language);
    return () => {
      made.destroy();
      editor.current = null;
    };
  }, []);

  const edits = editing !== null;
  useEffect(() => {
    const made = editor.current;
    if (!made) return;
    if (!edits && made.text !== listing.text) made.show(listing.text, text.language);
    made.edit(edits);
    // Lines that are typed or taken out would stand beside labels of others.
    made.label(edits ? { title: '', of: new Map() } : (lines.current?.labels() ?? { title: '', of: new Map() }));
  }, [edits]);
  useEffect(() => editor.current?.problem(editing?.problem ?? null), [editing?.problem]);
  // What is typed goes from the editor to the draft, and only a reset the other way: it may be behind the editor.
  useEffect(() => {
    if (editing?.resets) editor.current?.replace(editing.text);
  }, [editing?.resets]);

  useSignalEffect(() => {
    const lit = state.lit.value;
    if (!now.current.editing) editor.current?.light(lit ? (lines.current?.lit(lit.ids) ?? []) : []);
  });
  useSignalEffect(() => {
    const pinned = state.pinned.value;
    if (!pinned || now.current.editing) return;
    const found = lines.current?.lit(state.around(pinned).ids) ?? [];
    editor.current?.reveal(found);
  });

  return (
    <div class="nbc-code-text">
      {/* Never without a size: CodeMirror would draw every line of a text that it takes for unbounded. */}
      <div class="nbc-editor" ref={place} />
    </div>
  );
}

function hooks(now: { current: Props }, lines: { current: Lines | null }): Hooks {
  const focus = (line: number) => {
    const id = lines.current?.id(line);
    return id ? { ids: [id] } : null;
  };
  return {
    point: (line) => {
      if (!now.current.editing) now.current.state.hover(line === null ? null : focus(line));
    },
    choose: (line) => now.current.state.pin(focus(line)),
    chooseLabel: (line) => {
      const { state } = now.current;
      const cell = lines.current?.cell(line);
      state.pin(cell === undefined ? focus(line) : { ids: [], line: cell });
    },
    edited: (text) => now.current.editing?.change(text),
    run: () => now.current.editing?.run(),
  };
}

/** Which line of a listing leads to which line of the kernel's first source, and that to the cell. */
class Lines {
  /** The lines shown by the line of the first source. */
  private readonly shown = new Map<number, number[]>();
  private readonly origins: ReadonlyMap<number, readonly string[]>;
  private readonly first: boolean;

  constructor(
    private readonly state: State,
    private readonly kernel: Kernel,
    private readonly listing: Listing,
    private readonly several: () => boolean,
  ) {
    this.first = listing.made.length === 0;
    this.origins = new Map(kernel.line_map.map((link) => [link.line, link.origins]));
    listing.made.forEach((line, place) => {
      const list = this.shown.get(line);
      if (list) list.push(place + 1);
      else if (line) this.shown.set(line, [place + 1]);
    });
  }

  /** The id of what a line was made for; `null`: nobody knows. */
  id(line: number): string | null {
    const source = this.first ? line : (this.listing.made[line - 1] ?? 0);
    const linked = this.first ? this.origins.has(line) || this.several() : source > 0;
    return linked ? generated(this.kernel.id, source) : null;
  }

  /** The line of the cell that a label stands for. */
  cell(line: number): number | undefined {
    if (!this.first) return undefined;
    const lines = [...this.state.links.lines(this.origins.get(line) ?? [])];
    return lines.length ? Math.min(...lines) : undefined;
  }

  /** The lines that stand for these ids, in order. */
  lit(ids: ReadonlySet<string>): number[] {
    const out: number[] = [];
    if (this.first) {
      // A line that nothing was recorded for can still be pointed at from the texts made from it.
      for (const id of ids) {
        if (id.startsWith(`${this.kernel.id}:`)) out.push(Number(id.slice(this.kernel.id.length + 1)));
      }
    } else {
      for (const [line, places] of this.shown) if (ids.has(generated(this.kernel.id, line))) out.push(...places);
    }
    return out.sort((a, b) => a - b);
  }

  labels(): Labels {
    if (this.first) {
      const of = new Map([...this.origins].map(([line, ids]) => [line, linesLabel([...this.state.links.lines(ids)])]));
      return { title: 'made for the cell, line', of };
    }
    const of = new Map<number, string>();
    this.listing.made.forEach((line, place) => {
      if (line && line !== this.listing.made[place - 1]) of.set(place + 1, `${line}`);
    });
    return { title: 'made for the source, line', quiet: true, of };
  }
}
