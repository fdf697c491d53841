/** What the explorer needs from the place it stands in: JupyterLab, a widget, a file. */
import type { ReadonlySignal, Signal } from '@preact/signals';
import type Plotly from 'plotly.js-basic-dist-min';

export type Theme = 'light' | 'dark';
export type Charts = typeof Plotly;

declare global {
  interface Window {
    /** Where the chart library puts itself when it is run as a script. */
    Plotly?: Charts;
  }
}

/** How far a long step is; `done` of `of` where that is known. */
export interface Progress {
  text: string;
  done?: number;
  of?: number;
}

/** The way to a live kernel. The protocol is described in nbcompile/notebook/play/play.py. */
export interface Kernel {
  /** Rejects with a {@link PlayError}. */
  request<T>(method: string, params: object, progress?: (step: Progress) => void): Promise<T>;
  /** Whether {@link cancel} can do anything: else the kernel's own interrupt button has to. */
  readonly cancellable: boolean;
  /** Interrupts what was asked for by {@link request} and is under way. */
  cancel(): void;
  /** Interrupts whatever the kernel does; where that can be done from here. */
  stopAll?(): void;
}

/** What a kernel answered instead of a result. `line`: of the cell, or of the kernel that was edited. */
export class PlayError extends Error {
  constructor(
    readonly title: string,
    message: string,
    readonly advice = '',
    readonly line: number | null = null,
    readonly cancelled = false,
  ) {
    super(message);
    this.name = 'PlayError';
  }
}

export interface Host {
  readonly theme: ReadonlySignal<Theme>;
  /** `null` while there is none: in a file, or with no kernel running. */
  readonly kernel: ReadonlySignal<Kernel | null>;
  /** Why there is no kernel and what to do about it, for the controls that need one. */
  readonly needs: string;
  /** Whether more than the answer is shown: as the place begins, and as its user leaves it. */
  readonly open: Signal<boolean>;
  /** Loads the chart library: called when the first chart is shown. */
  charts(): Promise<Charts>;
}

/** A bubbling event from the explorer's element: what is lit. The Lab plugin marks the cell's lines by it. */
export const FOCUS_EVENT = 'nbcompile:focus';
export interface FocusDetail {
  record: string;
  /** Lines of the cell that are lit; `null`: nothing is. */
  lines: number[] | null;
}

/** An event to the explorer's element: the cursor is on this line of the cell (`null`: on none). */
export const LINE_EVENT = 'nbcompile:line';
export interface LineDetail {
  line: number | null;
}

/**
 * A bubbling, cancelable event from the explorer's element: put this text in the place of the cell's. Who does so
 * prevents the default and says what became of it.
 */
export const APPLY_EVENT = 'nbcompile:apply';
export interface ApplyDetail {
  /** The cell as it was compiled, or as it ran. */
  before: string;
  /** Another cell than the explorer's own, by the name that it has: `In [3]`; empty for its own. */
  cell: string;
  after: string;
  said: string;
}
