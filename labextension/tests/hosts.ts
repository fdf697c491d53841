/** A host and a live kernel that answer as a test says. */
import { signal } from '@preact/signals';
import type { Host, Kernel, Progress } from '../src/explorer/host';
import { mount, type Explorer } from '../src/explorer/mount';
import type { State } from '../src/explorer/state';
import { payloadOf } from './records';

export interface Payload {
  id: string;
  options: Record<string, unknown>;
  [key: string]: unknown;
}

/** A payload of tests/fixtures, made by scripts/explorer_fixtures.py. */
export function fixture(name: 'small' | 'triton' | 'walk'): Payload {
  return payloadOf(name) as Payload;
}

export type Answer = (method: string, params: object, progress?: (step: Progress) => void) => Promise<unknown>;

export interface Opened {
  element: HTMLElement;
  explorer: Explorer;
  now(): State;
  cancels(): number;
}

/** Opens a payload in the page; without `answer` there is no kernel. */
export async function opened(payload: unknown, answer: Answer | null): Promise<Opened> {
  let cancels = 0;
  const kernel: Kernel | null = answer && {
    request: answer as Kernel['request'],
    cancellable: true,
    cancel: () => {
      cancels += 1;
    },
  };
  const host: Host = {
    theme: signal('light' as const),
    kernel: signal(kernel),
    needs: 'Open the notebook.',
    open: signal(true),
    charts: () => Promise.reject(new Error('no charts')),
  };
  const element = document.createElement('div');
  document.body.append(element);
  const explorer = mount(element, payload, host);
  await explorer.ready;
  return {
    element,
    explorer,
    now: () => {
      if (!explorer.state) throw new Error('nothing is shown');
      return explorer.state;
    },
    cancels: () => cancels,
  };
}

/** Until `found` gives something; rejects after two seconds. */
export async function until<T>(found: () => T | null | undefined | false): Promise<T> {
  for (let tries = 0; tries < 200; tries++) {
    const value = found();
    if (value) return value;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
  throw new Error(`nothing came of ${found.toString()}`);
}
