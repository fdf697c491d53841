/** Compilations that were put aside to be compared. They stay while the page is open. */
import { signal } from '@preact/signals';

export interface Pin {
  /** Of the record. */
  id: string;
  title: string;
  payload: object;
}

export const pins = signal<readonly Pin[]>([]);

export function pin(payload: object): void {
  const made: Pin = { id: text(payload, 'id'), title: titleOf(payload), payload };
  pins.value = [...pins.value.filter((each) => each.id !== made.id), made];
}

export function unpin(id: string): void {
  pins.value = pins.value.filter((each) => each.id !== id);
}

/** `In [3] · inductor · max-autotune`, which stands beside the packed record. The payload is unchecked. */
export function titleOf(payload: object): string {
  return text(payload, 'title') || 'nbcompile';
}

function text(holder: object, name: string): string {
  const value = (holder as Record<string, unknown>)[name];
  return typeof value === 'string' ? value : '';
}
