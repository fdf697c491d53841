/** The card over a line: what serves it, and what keeps it from being compiled. Text nodes only. */
import type { LineMark } from './lines';

const CALLS = 6;

export function card(mark: LineMark): HTMLElement {
  const rest = mark.calls.length - CALLS;
  return made('div', 'nbc-card', [
    made('div', `nbc-card-title nbc-card-${mark.fate}`, [mark.summary]),
    ...mark.reasons.map((each) =>
      made('div', 'nbc-card-reason', [each.text, ...(each.hint ? [made('div', 'nbc-card-hint', [each.hint])] : [])]),
    ),
    made('ul', 'nbc-card-calls', [
      ...mark.calls.slice(0, CALLS).map((call) =>
        made('li', '', [made('span', `nbc-card-chip nbc-card-on-${call.fate}`, [call.label]), ` ${call.text}`]),
      ),
      ...(rest > 0 ? [made('li', 'nbc-card-hint', [`and ${rest} more`])] : []),
    ]),
  ]);
}

function made(tag: string, name: string, children: (string | Node)[]): HTMLElement {
  const element = document.createElement(tag);
  element.className = name;
  element.append(...children);
  return element;
}
