import type { GraphBreak } from '../record/generated/record';
import type { Timing, TimingRow } from '../record/generated/scene';
import { CellPane } from './CellPane';
import { Mended } from './Mended';
import { litLine, pointing, type State } from './state';
import { contestant } from './timing/contestants';
import { clip, seconds, times } from './units';

/** Breaks and recompiles that are told here; the rest are one click further. */
const FEW = 3;

/** What one looks at first: the whole cell with what became of it, times as bars, breaks with their mends. */
export function Answer({ state }: { state: State }) {
  const { record, scene } = state.data;
  const timing = scene?.timings[0];
  const interrupted = record.breaks.length + record.recompiles.length > 0;
  const cell = record.cell !== null && !isBare(state);
  if (!cell && !timing && !interrupted) return null;
  return (
    <div class={`nbc-answer ${cell ? '' : 'nbc-answer-plain'}`}>
      {cell && <section class="nbc-answer-cell" aria-label="cell"><CellPane state={state} /></section>}
      {(timing || interrupted) && (
        <div class="nbc-answer-side">
          {timing && <Bars timing={timing} />}
          {interrupted && <Breaks state={state} />}
        </div>
      )}
    </div>
  );
}

/** Whether there is nothing to explore: no graph, no kernel, and what Python ran of it is said in the headline. */
export function isBare(state: State): boolean {
  const { record, scene } = state.data;
  const left = (scene?.lines ?? []).filter((line) => line.fate === 'eager' || line.fate === 'break');
  return !record.graphs.length && !record.kernels.length && left.length < 2;
}

/** A bar a contestant, as plain boxes: they are there before any chart library. */
function Bars({ timing }: { timing: Timing }) {
  const longest = Math.max(1e-12, ...timing.rows.map((row) => (row.counts && row.median) || 0));
  return (
    <section class="nbc-bars" aria-label={`times: ${timing.about}`} title={`${timing.what}: ${timing.about}`}>
      {timing.rows.map((row) => (
        <div class="nbc-bar-row" title={aboutRow(row)}>
          <span class={`nbc-bar-name ${row.own ? 'nbc-own' : ''}`}>{clip(contestant(row), 26)}</span>
          <span class="nbc-bar-track">
            {row.counts && row.median !== null && <i class={`nbc-bar nbc-bar-${kind(row)}`} style={{ width: `${(100 * row.median) / longest}%` }} />}
            {!row.counts && <em class="nbc-tone-bad">{row.reason.startsWith('raised ') ? clip(row.reason, 60) : 'did not run compiled'}</em>}
          </span>
          <span class="nbc-bar-figure">{row.counts ? seconds(row.median) : ''}</span>
          <BesideEager row={row} />
        </div>
      ))}
    </section>
  );
}

/** How many times faster, which of wrong results is nothing. */
function BesideEager({ row }: { row: TimingRow }) {
  if (row.counts && row.reason) return <span class="nbc-bar-figure nbc-tone-bad">✗ wrong</span>;
  const told = row.counts && row.ratio !== null && row.contestant !== 'eager';
  return <span class="nbc-bar-figure nbc-quiet">{told ? times(row.ratio as number) : ''}</span>;
}

function kind(row: TimingRow): string {
  if (row.own) return 'own';
  return row.contestant === 'eager' ? 'eager' : 'peer';
}

function aboutRow(row: TimingRow): string {
  if (!row.counts) return row.reason.startsWith('raised ') ? row.reason : `did not run compiled: ${row.reason}`;
  if (row.median === null) return 'not timed';
  const spread = row.p10 !== null && row.p90 !== null ? `, p10 ${seconds(row.p10)}, p90 ${seconds(row.p90)}` : '';
  const cold = row.cold !== null ? `, compiled in ${seconds(row.cold)}` : '';
  return `${row.reason ? `${row.reason}; ` : ''}median ${seconds(row.median)}${spread}${cold}`;
}

/** Where the graph ends and why code was compiled again, each with what to change. */
function Breaks({ state }: { state: State }) {
  const { breaks, recompiles } = state.data.record;
  const all = breaks.length + recompiles.length;
  const shown = breaks.slice(0, FEW);
  const again = recompiles.slice(0, FEW - shown.length);
  return (
    <section class="nbc-interrupted" aria-label="graph breaks and recompiles">
      <div>
        {shown.map((each, place) => <Break state={state} each={each} place={place} />)}
        {again.map((each, place) => (
          <div class="nbc-interruption">
            <b>{where(each.spans) || 'recompiled'}</b> compiled again: {clip(each.reason, 110)}
            <Mended state={state} place={place} of="recompiles" brief />
          </div>
        ))}
      </div>
      {all > shown.length + again.length && (
        <button type="button" class="nbc-more-of" onClick={(event) => { event.stopPropagation(); state.enter('guards'); }}>
          {all - shown.length - again.length} more
        </button>
      )}
    </section>
  );
}

function Break({ state, each, place }: { state: State; each: GraphBreak; place: number }) {
  const line = each.spans.find((span) => !span.file)?.line;
  const linked = line === undefined ? {} : pointing(state, { ids: [], line });
  return (
    <div class={`nbc-interruption ${line === undefined ? '' : litLine(state.lit.value, line)}`} {...(line === undefined ? {} : { role: 'button' })} {...linked}>
      <b>{where(each.spans) || 'graph break'}</b> {each.reason}
      {each.hint && !each.mend?.after && <span class="nbc-quiet"> → {each.hint}</span>}
      <Mended state={state} place={place} brief />
    </div>
  );
}

function where(spans: GraphBreak['spans']): string {
  const own = spans.find((span) => !span.file);
  return own ? `line ${own.line}` : '';
}
