import { useComputed, useSignal, useSignalEffect, type Signal } from '@preact/signals';
import { useEffect, useMemo, useRef } from 'preact/hooks';
import { nextFrame } from '../frame';
import { runChange } from '../play';
import { litClass, pointingRow, type State } from '../state';
import { bytes, clip, linesLabel } from '../units';
import { chosenRows, isShown, overruling, SHOWN, SORTED, type Choice, type Row } from './rows';

/** Rows at first, and at each "show more". */
const PAGE = 60;

/** What a table keeps while records change under it. */
export interface TableState {
  choice: Signal<Choice>;
  /** The pair whose switch was used, in this record: it has the focus again once the next one is shown. */
  switched: { pair: string; record: string } | null;
}

interface Props {
  state: State;
  rows: readonly Row[];
  table: TableState;
  /** The decision that the stepper stands at. */
  step: Signal<number>;
}

/** All decisions, with what each saves and why, and a switch that overrules it. */
export function Table({ state, rows, table, step }: Props) {
  const { choice } = table;
  const most = useSignal(PAGE);
  const found = useMemo(() => chosenRows(rows, choice.value), [rows, choice.value]);
  const set = (by: Partial<Choice>): void => {
    choice.value = { ...choice.value, ...by };
    most.value = PAGE;
  };
  const whole = useRef<HTMLDivElement>(null);
  useSignalEffect(() => bringIntoSight(whole.current?.querySelector(`[data-step="${step.value}"]`) ?? null));
  useSignalEffect(() => {
    const wanted = firstAbout(state, found);
    if (wanted < 0) return;
    if (wanted >= most.peek()) most.value = wanted + PAGE;
    const row = found[wanted]?.step;
    // Once a row beyond those shown so far is rendered.
    nextFrame(whole.current, () => bringIntoSight(whole.current?.querySelector(`[data-step="${row}"]`) ?? null));
  });
  return (
    <div class="nbc-decisions" ref={whole}>
      <div class="nbc-filters" role="group" aria-label="which decisions">
        {(Object.keys(SHOWN) as Choice['shown'][]).map((shown) => (
          <button type="button" class="nbc-filter" aria-pressed={choice.value.shown === shown} onClick={() => set({ shown })}>
            {SHOWN[shown]} <span class="nbc-quiet">{rows.filter((row) => isShown(row.decision, shown)).length}</span>
          </button>
        ))}
        <input type="search" placeholder="find a loop or a reason" aria-label="find a loop or a reason" value={choice.value.search} onInput={(event) => set({ search: event.currentTarget.value })} />
        <select aria-label="order" value={choice.value.sorted} onChange={(event) => set({ sorted: event.currentTarget.value as Choice['sorted'] })}>
          {Object.entries(SORTED).map(([value, label]) => <option value={value}>{label}</option>)}
        </select>
      </div>
      <table class="nbc-table">
        <thead>
          <tr>
            <th>Fusion decision</th>
            <th />
            <th class="nbc-figure">saves</th>
            <th>why</th>
            <th>line</th>
            <th><span class="nbc-unseen">fuse this pair</span></th>
          </tr>
        </thead>
        <tbody>
          {found.slice(0, most.value).map((row) => <Decided key={row.decision.id} state={state} row={row} table={table} step={step} />)}
        </tbody>
      </table>
      {found.length === 0 && <p class="nbc-empty">No decision is like this.</p>}
      {found.length > most.value && (
        <button type="button" class="nbc-button nbc-show-more" onClick={() => (most.value += 2 * PAGE)}>
          Show more: {most.value} of {found.length.toLocaleString('en')} are shown
        </button>
      )}
    </div>
  );
}

function Decided({ state, row, table, step }: { state: State; row: Row; table: TableState; step: Signal<number> }) {
  const { decision } = row;
  const ids = [decision.id, decision.producer, decision.consumer];
  const point = pointingRow(state, { ids });
  const choose = point['onClick'] as (event: Event) => void;
  const [verdict, tone] = verdictOf(row);
  const price = state.data.scene?.prices?.[decision.id] ?? '';
  // A signal as a class: what is lit changes hundreds of rows at once, and none of them is rendered for it.
  const look = useComputed(() => `${litClass(state.lit.value, [decision.id])} ${step.value === row.step ? 'nbc-here' : ''}`);
  return (
    <tr
      {...point}
      data-step={row.step}
      class={look}
      onClick={(event) => {
        step.value = row.step;
        choose(event);
      }}
    >
      <td class="nbc-pair" title={`${row.producer} ${decision.kind === 'siblings' ? 'and' : '→'} ${row.consumer}`}>
        {clip(row.producer, 28)} <span class="nbc-quiet">{decision.kind === 'siblings' ? '+' : '→'}</span> {clip(row.consumer, 28)}
      </td>
      <td class={`nbc-verdict-word ${tone}`}>{verdict}</td>
      <td class={`nbc-figure ${decision.accepted ? '' : 'nbc-quiet'}`} title={decision.accepted ? 'memory traffic that this saves' : 'memory traffic that fusing would save'}>
        {decision.bytes_saved ? bytes(decision.bytes_saved) : '–'}
      </td>
      <td class="nbc-quiet nbc-why">
        {decision.reason}{price && `. It ${price}.`}
      </td>
      <td class="nbc-quiet">{linesLabel(row.lines)}</td>
      <td><Switch state={state} row={row} table={table} /></td>
    </tr>
  );
}

/** Place of the first row about what is pinned: one that made it a kernel, if it is one; -1: none. */
function firstAbout(state: State, rows: readonly Row[]): number {
  const pinned = state.pinned.value;
  if (!pinned) return -1;
  const { ids } = state.around(pinned);
  const own = new Set(pinned.ids.flatMap((id) => state.links.decisionsOf(id)));
  const made = rows.findIndex(({ decision }) => decision.accepted && own.has(decision.id));
  return made >= 0 ? made : rows.findIndex(({ decision }) => ids.has(decision.id));
}

/** Scrolls the panel, and nothing around it, to a row below its head. */
function bringIntoSight(row: Element | null): void {
  const panel = row?.closest('.nbc-panel');
  if (!row || !panel) return;
  const [box, seen] = [row.getBoundingClientRect(), panel.getBoundingClientRect()];
  const head = 40;
  if (box.top < seen.top + head || box.bottom > seen.bottom) panel.scrollTop += box.top - seen.top - head;
}

function verdictOf({ decision }: Row): [string, string] {
  if (decision.overruled) return [decision.accepted ? 'fused by you' : 'refused by you', 'nbc-by-user'];
  return decision.accepted ? ['fused', 'nbc-tone-good'] : ['refused', 'nbc-tone-bad'];
}

function Switch({ state, row, table }: { state: State; row: Row; table: TableState }) {
  const { accepted } = row.decision;
  const button = useRef<HTMLButtonElement>(null);
  const pair = `${row.producer} → ${row.consumer}`;
  const change = overruling(state.data.record, row);
  const busy = state.play.step.value !== null;
  const live = state.host.kernel.value !== null;
  const why = 'why' in change ? change.why : live ? '' : state.host.needs;
  useEffect(() => {
    if (table.switched?.pair !== pair || table.switched.record === state.data.record.id) return;
    table.switched = null;
    button.current?.focus();
  }, []);
  return (
    <button
      type="button"
      role="switch"
      ref={button}
      class="nbc-switch"
      aria-checked={accepted}
      aria-label={`fuse ${pair}`}
      title={why || (accepted ? 'Compile again with these two apart' : 'Compile again with these two in one kernel')}
      disabled={why !== '' || busy}
      onKeyDown={(event) => event.stopPropagation()}
      onClick={(event) => {
        event.stopPropagation();
        if ('why' in change) return;
        table.switched = { pair, record: state.data.record.id };
        void runChange(state, change.settings, `${pair} ${accepted ? 'apart' : 'fused'}`).then((done) => {
          if (!done) table.switched = null;
        });
      }}
    >
      <i />
    </button>
  );
}
