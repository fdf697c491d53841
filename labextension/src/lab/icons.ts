/** Icons: many lines that become one block. They take JupyterLab's colours, light and dark. */
import { LabIcon } from '@jupyterlab/ui-components';

const LINES = `<g class="jp-icon3 jp-icon-selectable" fill="#616161">
  <rect x="1" y="2.4" width="4" height="1.6" rx="0.8"/>
  <rect x="1" y="7.2" width="4" height="1.6" rx="0.8"/>
  <rect x="1" y="12" width="4" height="1.6" rx="0.8"/>
  <rect x="10" y="5" width="5" height="6" rx="1.4"/>
</g>
<g class="jp-icon3 jp-icon-selectable" fill="none" stroke="#616161" stroke-width="1.3">
  <path fill="none" d="M5 3.2C8 3.2 7.4 7 10 7M5 8h5M5 12.8C8 12.8 7.4 9 10 9"/>
</g>`;
const PIN = '<path class="jp-icon3 jp-icon-selectable" fill="#616161" d="M5.2 1.5h5.6v1.3l-.9.6v3.4l2.3 2v1.4H8.7V14L8 15.2 7.3 14v-3.8H3.8V8.8l2.3-2V3.4l-.9-.6z"/>';

export const compileIcon = new LabIcon({ name: 'nbcompile:compile', svgstr: svg(LINES) });
export const pinIcon = new LabIcon({ name: 'nbcompile:pin', svgstr: svg(PIN) });

function svg(inside: string): string {
  return `<svg xmlns="http://www.w3.org/2000/svg" width="16" height="16" viewBox="0 0 16 16">${inside}</svg>`;
}
