/** What one explorer shows and what is lit in it; the views read it and nothing else. */
import { batch, computed, signal, type ReadonlySignal, type Signal } from '@preact/signals';
import type { Graph, Kernel } from '../record/generated/record';
import type { Call } from '../record/generated/scene';
import { Links } from '../record/links';
import type { Unpacked } from '../record/read';
import type { Host } from './host';
import { Layout } from './layout';
import { Play } from './play';
import { latestFirst } from './stages';

/** Something pointed at: ids of the record, or a line of the cell. */
export interface Focus {
  ids: readonly string[];
  line?: number;
  /** Lines of the cell, where another compiler's record is pointed at. */
  lines?: readonly number[];
}

/** All that came from what is pointed at or led to it. */
export interface Lit {
  ids: ReadonlySet<string>;
  lines: ReadonlySet<number>;
}

export type Panel = 'fusion' | 'capture' | 'timing' | 'guards' | 'play' | 'compare' | 'text';

export class State {
  readonly links: Links;
  readonly calls: ReadonlyMap<string, Call>;
  private readonly hovered = signal<Focus | null>(null);
  /** Chosen by a click or Enter: stays when the pointer leaves, until Escape or another click. */
  readonly pinned = signal<Focus | null>(null);
  readonly panel = signal<Panel>('fusion');
  /** Whether more than the answer is shown; the host keeps it. */
  readonly open: Signal<boolean>;
  /** Id of the graph that is drawn; empty: the one the view likes best. */
  readonly graph = signal('');
  /** Id of the kernel whose code is shown; empty: the heaviest. */
  readonly kernel = signal('');
  /** Whether the code spans the explorer, one text beside another. */
  readonly wide: Signal<boolean>;
  /** How large the panes are, and where they stand: goes on from record to record. */
  layout: Layout;
  readonly lit: ReadonlySignal<Lit | null> = computed(() => {
    const focus = this.hovered.value ?? this.pinned.value ?? this.elsewhere();
    return focus && this.around(focus);
  });
  /** What other compilers made of the same program: what is lit in one is lit, by lines of the cell, in all. */
  readonly peers: readonly State[];
  /** Whose code is shown: a peer's record, by its id; empty: this one's. */
  readonly compiler = signal('');

  /**
   * `play` is shared by the states of one explorer, one a record. `beside`: the state that this one is a peer of.
   */
  constructor(
    readonly data: Unpacked,
    readonly host: Host,
    readonly play = new Play(() => undefined),
    private readonly beside: State | null = null,
  ) {
    this.wide = beside?.wide ?? signal(false);
    this.layout = beside?.layout ?? new Layout();
    this.open = host.open;
    const still = { ...host, kernel: signal(null), needs: 'What other compilers made is shown as it is.' };
    this.peers = data.peers.map((peer) => new State(peer, still, undefined, this));
    this.links = new Links(data.record, data.scene?.file);
    this.calls = new Map((data.scene?.calls ?? []).map((call) => [call.id, call]));
    this.kernel.value = this.heaviest()?.id ?? '';
  }

  /** Takes over what another state shows, where this record has the same. */
  takeOver(from: State): void {
    this.panel.value = from.panel.value;
    this.layout = from.layout;
    if (this.peers.some((peer) => peer.data.record.id === from.compiler.value)) this.compiler.value = from.compiler.value;
    this.wide.value = from.wide.value;
    if (this.data.record.id === from.data.record.id) this.pinned.value = from.pinned.value;
    if (this.data.record.graphs.some((graph) => graph.id === from.graph.value)) this.graph.value = from.graph.value;
    const kernel = this.links.kernels.get(from.kernel.value);
    if (kernel && kernel.name === from.links.kernels.get(kernel.id)?.name) this.kernel.value = kernel.id;
  }

  /** Whether it stands beside another: what is chosen is chosen there. */
  get isPeer(): boolean {
    return this.beside !== null;
  }

  private heaviest(): Kernel | undefined {
    const share = (kernel: Kernel): number => this.calls.get(kernel.id)?.share ?? 0;
    return [...this.data.record.kernels].sort((a, b) => share(b) - share(a))[0];
  }

  around(focus: Focus): Lit {
    if (focus.line !== undefined) return { ids: this.links.atLine(focus.line), lines: new Set([focus.line]) };
    if (focus.lines) {
      const found = focus.lines.flatMap((line) => [...this.links.atLine(line)]);
      return { ids: new Set(found), lines: new Set(focus.lines) };
    }
    const ids = this.links.up(focus.ids);
    const lines = this.links.lines(focus.ids);
    for (const id of this.links.down(focus.ids)) ids.add(id);
    for (const id of focus.ids) for (const decision of this.links.decisionsOf(id)) ids.add(decision);
    // A generated line is made from loops, as its kernel is, and not from the kernel; but it is in it.
    for (const id of focus.ids) if (this.links.owner(id)) ids.add(this.links.owner(id));
    return { ids, lines };
  }

  /** Opens the explorer at this panel. */
  enter(panel: Panel): void {
    batch(() => {
      this.panel.value = panel;
      this.open.value = true;
    });
  }

  hover(focus: Focus | null): void {
    batch(() => {
      this.hovered.value = focus;
      this.beside?.hover(focus && this.byLines(focus));
    });
  }

  /** The same, in the words of every record of this cell. */
  private byLines(focus: Focus): Focus {
    return { ids: [], lines: [...this.around(focus).lines].sort((a, b) => a - b) };
  }

  /** What is pointed at in the record that this one stands beside. */
  private elsewhere(): Focus | null {
    const lit = this.beside?.lit.value;
    return lit ? { ids: [], lines: [...lit.lines] } : null;
  }

  /** Pins, or unpins what is pinned already; shows the code of the kernel that it leads to. */
  pin(focus: Focus | null): void {
    if (this.beside) {
      this.beside.pin(focus && this.byLines(focus));
      return;
    }
    batch(() => {
      const same = focus && this.pinned.value && sameFocus(focus, this.pinned.value);
      this.pinned.value = same ? null : focus;
      if (same || !focus) return;
      // What a chip stands for is seen in the graph and the code only.
      if (focus.ids.length) this.open.value = true;
      this.follow(focus);
      for (const peer of this.peers) peer.follow(this.byLines(focus));
    });
  }

  /** Shows what is pinned: its code, and a graph that has it, of the stage that is shown where there is one. */
  private follow(focus: Focus): void {
    const { ids } = this.around(focus);
    const own = focus.ids.find((id) => this.links.kernels.has(id));
    if (own !== undefined) this.kernel.value = own;
    else if (!ids.has(this.kernel.value)) {
      const first = this.data.record.kernels.find((kernel) => ids.has(kernel.id));
      if (first) this.kernel.value = first.id;
    }
    const graphs = latestFirst(this.data.record);
    const shown = graphs.find((each) => each.id === this.graph.value) ?? graphs[0];
    const asked = new Set(focus.ids);
    const holds = (wanted: ReadonlySet<string>) => (graph: Graph) => graph.nodes.some((node) => wanted.has(node.id));
    if (!shown || holds(ids)(shown)) return;
    const others = [...graphs.filter((each) => each.stage === shown.stage), ...graphs];
    const next = others.find(holds(asked)) ?? others.find(holds(ids));
    if (next) this.graph.value = next.id;
  }

  /** Shows a kernel, and lights what it came from. */
  choose(kernel: string): void {
    const focus = { ids: [kernel] };
    if (this.beside || (this.pinned.value && sameFocus(this.pinned.value, focus))) this.kernel.value = kernel;
    else this.pin(focus);
  }
}

export function sameFocus(a: Focus, b: Focus): boolean {
  if (String(a.lines) !== String(b.lines)) return false;
  return a.line === b.line && a.ids.length === b.ids.length && a.ids.every((id, place) => id === b.ids[place]);
}

/** Class of an element that stands for these ids: lit, dimmed, or as usual. */
export function litClass(lit: Lit | null, ids: readonly string[]): string {
  if (!lit) return '';
  return ids.some((id) => lit.ids.has(id)) ? 'nbc-lit' : 'nbc-dim';
}

/** Class of an element that stands for a line of the cell. */
export function litLine(lit: Lit | null, line: number): string {
  if (!lit) return '';
  return lit.lines.has(line) ? 'nbc-lit' : 'nbc-dim';
}

/** The same of a row of a table, which is no button and cannot be one: what is chosen is current. */
export function pointingRow(state: State, focus: Focus): Record<string, unknown> {
  const { 'aria-pressed': pressed, ...rest } = pointing(state, focus);
  return { ...rest, 'aria-current': pressed };
}

/** What makes an element point at something, by mouse, keyboard and screen reader alike. */
export function pointing(state: State, focus: Focus): Record<string, unknown> {
  const pinned = state.pinned.value;
  return {
    tabIndex: 0,
    'aria-pressed': pinned !== null && sameFocus(pinned, focus),
    onMouseEnter: () => state.hover(focus),
    onMouseLeave: () => state.hover(null),
    onFocus: () => state.hover(focus),
    onBlur: () => state.hover(null),
    onClick: (event: Event) => {
      event.stopPropagation();
      state.pin(focus);
    },
    onKeyDown: (event: KeyboardEvent) => {
      if (event.key !== 'Enter' && event.key !== ' ') return;
      event.preventDefault();
      event.stopPropagation();
      state.pin(focus);
    },
  };
}
