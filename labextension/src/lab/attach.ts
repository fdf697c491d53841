/**
 * Where the MIME renderer meets the plugin. Both are in one federated package, so they share this module;
 * the renderer works without the plugin, and shows then what needs no kernel.
 */
import { signal, type ReadonlySignal } from '@preact/signals';
import type { Kernel } from '../explorer/host';

export const MIME = 'application/vnd.nbcompile.v1+json';

/** Finds the kernel of the notebook in which an element stands. */
export type FindKernel = (element: HTMLElement) => ReadonlySignal<Kernel | null>;

/** `null` until the plugin is there. */
export const findKernel = signal<FindKernel | null>(null);
