/** Where the panes of one explorer stand: how large each is, and which one is taken out of its place. */
import { signal } from '@preact/signals';

export type PaneId = 'graph' | 'code' | 'details' | 'all';

/** Over the whole window, at its right side with the page still in sight, or in a window of its own. */
export type Lift = 'maximised' | 'beside' | 'window';

/** What a border lies between: graph and code; both and the details; the page and what stands beside it. */
export type BorderId = 'panes' | 'height' | 'side';

const LEAST = 0.15;
/** Pixels that a pane is high at least. */
export const LOWEST = 160;
const TALLEST = 2400;

/** What is out of its place; `away`: the window of its own that it stands in. */
export interface Lifted {
  pane: PaneId;
  how: Lift;
  away?: Window;
}

export class Layout {
  readonly lifted = signal<Lifted | null>(null);
  /** The graph's part of the width that it shares with the code. */
  readonly split = signal(0.5);
  /** Pixels; `null`: as the style has it. Of the graph where it stands above the code, of both where not. */
  readonly height = signal<number | null>(null);
  /** The part of the window that belongs to what is beside the page. */
  readonly side = signal(0.5);

  howIs(pane: PaneId): Lift | null {
    const lifted = this.lifted.value;
    return lifted?.pane === pane ? lifted.how : null;
  }

  /** The window that a pane stands in, where that is one of its own. */
  windowOf(pane: PaneId): Window | null {
    const lifted = this.lifted.value;
    return lifted?.pane === pane ? lifted.away ?? null : null;
  }

  /** Takes a pane out of its place; once more puts it back. */
  lift(pane: PaneId, how: Exclude<Lift, 'window'>): void {
    this.lifted.value = this.howIs(pane) === how ? null : { pane, how };
  }

  /** Gives a pane a window that was opened for it. */
  detach(pane: PaneId, away: Window): void {
    this.lifted.value = { pane, how: 'window', away };
  }

  restore(): void {
    this.lifted.value = null;
  }

  setSplit(part: number): void {
    this.split.value = within(part, LEAST, 1 - LEAST);
  }

  setHeight(pixels: number | null): void {
    this.height.value = pixels === null ? null : Math.round(within(pixels, LOWEST, TALLEST));
  }

  setSide(part: number): void {
    this.side.value = within(part, LEAST, 1 - LEAST);
  }
}

function within(value: number, least: number, most: number): number {
  return Math.min(most, Math.max(least, value));
}
