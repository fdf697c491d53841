/**
 * The stand-alone file. Its records stand in `<script type="application/json">` elements, which run nothing,
 * and the chart library in a `text/plain` one, which is run when the first chart is shown; the file's
 * content-security policy names both scripts by their hashes and forbids all else.
 */
import { signal } from '@preact/signals';
import { mount } from '../explorer/mount';
import type { Charts, Host } from '../explorer/host';
import { watchTheme } from './theme';

const host: Host = {
  theme: watchTheme(),
  kernel: signal(null),
  needs: 'This is a file: to play with the compilation, open the notebook it came from and run the cell.',
  charts,
};

async function charts(): Promise<Charts> {
  if (!window.Plotly) {
    const script = document.createElement('script');
    script.textContent = document.getElementById('nbcompile-charts')?.textContent ?? '';
    document.head.append(script);
  }
  if (!window.Plotly) throw new Error('The chart library is missing from this file.');
  return window.Plotly;
}

for (const place of document.querySelectorAll<HTMLElement>('.nbcompile-explorer')) {
  const data = document.getElementById(place.dataset['payload'] ?? '');
  let payload: unknown = null;
  try {
    payload = JSON.parse(data?.textContent ?? '');
  } catch {
    // Told by the explorer: null is no record.
  }
  mount(place, payload, host);
  // The same record as plain HTML, for readers whose viewer runs no script.
  place.nextElementSibling?.remove();
}
