import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { Call, SceneLine as Line } from '../record/generated/scene';
import { highlighted } from './highlight';
import { litClass, litLine, pointing, type State } from './state';
import { clip, count, percent, seconds } from './units';

const FATES: Record<string, string> = {
  fused: 'in generated kernels', library: 'a library call', fallback: 'ran by torch: no lowering',
  break: 'the graph breaks here', captured: 'captured', compiled: 'compiled away', eager: 'ran eagerly', python: 'Python',
  unrun: 'not reached',
};
const CHIPS = 2;
/** Lines that are drawn: each is an element. */
const MAX_LINES = 5_000;

/** The user's source; each line tinted by what became of it, and opening to its kernels. */
export function CellPane({ state }: { state: State }) {
  const { record, scene } = state.data;
  const { source, more } = useMemo(() => cut(record.cell?.source ?? ''), [record]);
  const lines = useMemo(() => highlighted(body(source, record.cell?.body_starts ?? 1), 'python'), [source]);
  const known = useMemo(() => new Map((scene?.lines ?? []).map((line) => [line.number, line])), [scene]);
  const open = useSignal(new Set<number>());
  if (!source) return <p class="nbc-empty">This record has no cell: it was made by a call from a program.</p>;
  const magic = source.split('\n').slice(0, (record.cell?.body_starts ?? 1) - 1);
  const of = scene?.share_of === 'time' ? 'the time' : 'the bytes moved';
  const heaviest = (scene?.lines ?? []).reduce((most, line) => Math.max(most, line.share), 1e-9);
  const all = [...magic.map((text) => [<span class="nbc-quiet">{text}</span>]), ...lines];
  const written = source.split('\n');
  const toggle = (number: number): void => {
    const next = new Set(open.value);
    if (!next.delete(number)) next.add(number);
    open.value = next;
  };
  return (
    <div class="nbc-cell nbc-code" role="list" aria-label="your cell">
      {all.map((code, place) => {
        const number = place + 1;
        const line = known.get(number);
        const unfolded = open.value.has(number);
        return (
          <>
            <div class={`nbc-line nbc-fate-${line?.fate || 'none'} ${litLine(state.lit.value, number)}`} role="listitem" data-line={number}>
              <span class="nbc-number">{number}</span>
              <code class="nbc-source" role={line && 'button'} {...(line ? pointing(state, { ids: [], line: number }) : {})} aria-label={line && `${written[place] ?? ''} ${label(number, line, of)}`.trim()}>
                {code.length ? code : '\u00a0'}
              </code>
              {line && (
                <span class="nbc-served">
                  {line.share > 0 && (
                    <span class="nbc-share" title={`${percent(line.share)} of ${of}`}>
                      <i style={{ width: `${(100 * line.share) / heaviest}%` }} />
                    </span>
                  )}
                  <Chips state={state} line={line} open={unfolded} toggle={() => toggle(number)} />
                  <Quietly line={line} />
                </span>
              )}
            </div>
            {line && <Eagerly line={line} />}
            {line && unfolded && <Unfolded state={state} line={line} />}
          </>
        );
      })}
      {more > 0 && <p class="nbc-empty">… {count(more, 'more line')}</p>}
    </div>
  );
}

/** The cell's first lines, and how many are left out. */
function cut(source: string): { source: string; more: number } {
  const lines = source.split('\n');
  return { source: lines.length > MAX_LINES ? lines.slice(0, MAX_LINES).join('\n') : source, more: lines.length - MAX_LINES };
}

function label(number: number, line: Line, of: string): string {
  const share = line.share > 0 ? `, ${percent(line.share)} of ${of}` : '';
  const why = line.why ? `: ${line.why}` : '';
  return `line ${number}: ${FATES[line.fate] ?? 'nothing was compiled'}${why}${share}`;
}

/** Why there is nothing to compile in a line. */
function Quietly({ line }: { line: Line }) {
  return line.why && line.fate !== 'eager' ? <span class="nbc-why" title={line.why}>{clip(line.why, 30)}</span> : null;
}

/** Why Python ran a line that may hold tensor work. */
function Eagerly({ line }: { line: Line }) {
  return line.fate === 'eager' ? <p class="nbc-why nbc-why-eager">{FATES.eager}: {line.why}</p> : null;
}

function Chips({ state, line, open, toggle }: { state: State; line: Line; open: boolean; toggle: () => void }) {
  const calls = callsOf(state, line.calls.slice(0, CHIPS));
  const more = line.calls.length - CHIPS;
  if (!calls.length) return null;
  return (
    <span class="nbc-chips">
      {calls.map((call) => (
        <span class={`nbc-chip nbc-on-${call.fate} ${litClass(state.lit.value, [call.id])}`} role="button" title={call.name} {...pointing(state, { ids: [call.id] })}>
          {clip(call.label, 14)}
        </span>
      ))}
      <button type="button" class="nbc-more" aria-expanded={open} aria-label={`${more > 0 ? `+${more} ` : ''}kernels of line ${line.number}`} onClick={toggle}>
        {more > 0 ? `+${more}` : ''}{open ? '▾' : '▸'}
      </button>
    </span>
  );
}

function Unfolded({ state, line }: { state: State; line: Line }) {
  return (
    <ul class="nbc-unfolded" role="group" aria-label={`kernels of line ${line.number}`}>
      {callsOf(state, line.calls).map((call) => (
        <li class={litClass(state.lit.value, [call.id])} role="button" {...pointing(state, { ids: [call.id] })}>
          <span class={`nbc-chip nbc-on-${call.fate}`}>{clip(call.label, 14)}</span> {call.name}
          <span class="nbc-quiet"> {[percent(call.share), time(call)].filter(Boolean).join(' · ')}</span>
        </li>
      ))}
    </ul>
  );
}

function time(call: Call): string {
  if (call.seconds !== null) return seconds(call.seconds);
  return call.predicted === null ? '' : `about ${seconds(call.predicted)}`;
}

function callsOf(state: State, ids: readonly string[]): Call[] {
  return ids.map((id) => state.calls.get(id)).filter((call): call is Call => call !== undefined);
}

/** The cell without its magic line, which is not Python. */
function body(source: string, starts: number): string {
  return source.split('\n').slice(starts - 1).join('\n').replace(/\n$/, '');
}
