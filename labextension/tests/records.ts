/** Payloads of real compiles, made by scripts/explorer_fixtures.py, and hosts to open them in. */
import { signal } from '@preact/signals';
import { readFileSync } from 'node:fs';
import type { Host, Kernel } from '../src/explorer/host';
import { unpack, type Unpacked } from '../src/record/unpack';

export function payloadOf(name: string): Record<string, unknown> {
  return JSON.parse(readFileSync(`tests/fixtures/${name}.json`, 'utf8')) as Record<string, unknown>;
}

export function record(name: string): Unpacked {
  return unpack(payloadOf(name));
}

export function hostOf(kernel: Kernel | null): Host {
  return {
    theme: signal('light' as const),
    kernel: signal(kernel),
    needs: 'Open the notebook.',
    charts: () => Promise.reject(new Error('no charts here')),
  };
}
