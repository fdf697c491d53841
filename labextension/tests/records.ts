/** Payloads of real compiles, made by scripts/explorer_fixtures.py, and hosts to open them in. */
import { signal } from '@preact/signals';
import { readFileSync } from 'node:fs';
import { deflateSync, inflateSync } from 'node:zlib';
import type { Host, Kernel } from '../src/explorer/host';
import { read, type Unpacked } from '../src/record/read';

type Values = Record<string, unknown>;

/** As Python packs it. */
export function packedOf(name: string): Values {
  return JSON.parse(readFileSync(`tests/fixtures/${name}.json`, 'utf8')) as Values;
}

/** What is packed, to be changed. */
export function payloadOf(name: string): Values {
  return JSON.parse(inflateSync(Buffer.from(packedOf(name)['deflate'] as string, 'base64')).toString()) as Values;
}

/** Values packed as Python packs them. */
export function packed(values: Values): Values {
  return { ...values, title: '', deflate: deflateSync(JSON.stringify(values)).toString('base64') };
}

const NAMES = ['small', 'no_fuse', 'edited', 'inductor', 'triton', 'walk'];
const READ = new Map(await Promise.all(NAMES.map(async (name) => [name, await read(packedOf(name))] as const)));

/** A copy, which a test may change. */
export function record(name: string): Unpacked {
  return structuredClone(READ.get(name)) as Unpacked;
}

export function hostOf(kernel: Kernel | null): Host {
  return {
    theme: signal('light' as const),
    kernel: signal(kernel),
    needs: 'Open the notebook.',
    open: signal(true),
    charts: () => Promise.reject(new Error('no charts here')),
  };
}
