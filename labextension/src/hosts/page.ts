/**
 * The stand-alone file, made by nbcompile/view/html/page.py. Its records stand in `<script type="application/json">`
 * elements, which run nothing, and the chart library, packed, in a `text/plain` one, which is run when the first
 * chart is shown; the file's content-security policy names both scripts by their hashes and forbids all else.
 */
import { signal } from '@preact/signals';
import { mount } from '../explorer/mount';
import type { Charts, Host } from '../explorer/host';
import { inflate } from '../record/read';
import { watchTheme } from './theme';

const host: Host = {
  theme: watchTheme(),
  kernel: signal(null),
  needs: 'This is a file: to play with the compilation, open the notebook it came from and run the cell.',
  open: signal(true),
  charts,
};

async function charts(): Promise<Charts> {
  if (!window.Plotly) {
    const packed = document.getElementById('nbcompile-charts')?.textContent ?? '';
    const script = document.createElement('script');
    script.textContent = await inflate(packed);
    document.head.append(script);
  }
  if (!window.Plotly) throw new Error('The chart library is missing from this file.');
  return window.Plotly;
}

function read(id: string): unknown {
  try {
    return JSON.parse(document.getElementById(id)?.textContent ?? '');
  } catch {
    return null; // which is no record: the explorer says so
  }
}

/** Put the explorer in the place of each record of this file. */
export function openPage(): void {
  for (const place of document.querySelectorAll<HTMLElement>('.nbcompile-explorer')) {
    const still = place.nextElementSibling;
    const explorer = mount(place, read(place.dataset['payload'] ?? ''), host);
    void explorer.ready.then(() => {
      if (!still || !explorer.state) return;
      // The same record as plain HTML: until it is read, for viewers that run no script, and for paper.
      still.remove();
      window.addEventListener('beforeprint', () => place.replaceWith(still));
      window.addEventListener('afterprint', () => still.replaceWith(place));
    });
  }
}
