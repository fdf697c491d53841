import { signal, type ReadonlySignal } from '@preact/signals';
import type { Theme } from '../explorer/host';

/** The theme of the page around us: JupyterLab's and VS Code's by their own marks, else the reader's setting. */
export function watchTheme(): ReadonlySignal<Theme> {
  const theme = signal<Theme>(current());
  const update = (): void => {
    theme.value = current();
  };
  const marks = ['data-jp-theme-light', 'data-vscode-theme-kind', 'class', 'theme'];
  for (const element of [document.documentElement, document.body]) {
    new MutationObserver(update).observe(element, { attributes: true, attributeFilter: marks });
  }
  window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', update);
  return theme;
}

function current(): Theme {
  const lab = document.body.dataset['jpThemeLight'];
  if (lab !== undefined) return lab === 'false' ? 'dark' : 'light';
  const code = document.body.dataset['vscodeThemeKind'];
  if (code !== undefined) return code.includes('light') ? 'light' : 'dark';
  const colab = document.documentElement.getAttribute('theme');
  if (colab !== null) return colab === 'dark' ? 'dark' : 'light';
  return window.matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light';
}
