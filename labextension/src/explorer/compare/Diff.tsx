import { useMemo } from 'preact/hooks';
import { count } from '../units';
import { hunks, type DiffLine } from './lines';

/** Lines of a diff that are drawn: a long one says no more. */
const MAX_LINES = 600;

/** Two texts as a unified diff: signs beside the colours, numbers of both sides. */
export function Diff({ before, after, label }: { before: string; after: string; label: string }) {
  const parts = useMemo(() => hunks(before, after), [before, after]);
  if (!parts.length) return <p class="nbc-empty">The texts are the same.</p>;
  const lines = parts.flat();
  const signs = (sign: DiffLine['sign']): number => lines.filter((line) => line.sign === sign).length;
  let left = MAX_LINES;
  return (
    <div class="nbc-diff nbc-code" role="region" tabIndex={0} aria-label={`${label}: ${count(signs('-'), 'line')} removed, ${count(signs('+'), 'line')} added`}>
      {parts.map((part) => {
        const shown = part.slice(0, Math.max(0, left));
        left -= part.length;
        return (
          <div class="nbc-hunk">
            {shown.map((line) => (
              <div class={`nbc-diff-line ${CLASSES[line.sign]}`}>
                <span class="nbc-number">{line.before ?? ''}</span>
                <span class="nbc-number">{line.after ?? ''}</span>
                <span class="nbc-sign">{line.sign}</span>
                <code>{line.text || ' '}</code>
              </div>
            ))}
          </div>
        );
      })}
      {left < 0 && <p class="nbc-quiet nbc-diff-line">… {count(-left, 'more line', 'more lines')}</p>}
    </div>
  );
}

const CLASSES: Record<DiffLine['sign'], string> = { ' ': '', '+': 'nbc-added', '-': 'nbc-removed' };
