import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { Decision } from '../../record/generated/record';
import type { Call } from '../../record/generated/scene';
import type { Unpacked } from '../../record/read';
import { litClass, pointing, pointingRow, type State } from '../state';
import { bytes, clip, count, seconds, times } from '../units';
import { settings } from './differences';
import { Diff } from './Diff';
import { match, sourceOf, type DecisionPair, type Fate, type Match, type Pair } from './match';
import type { Candidate } from './sources';

/** Rows shown before one asks for all. */
const FEW = 8;
const SIGNS: Record<Fate, string> = { unchanged: '=', changed: '~', added: '+', removed: '−', split: '<', merged: '>', regrouped: '×' };
const TOLD: readonly Fate[] = ['changed', 'split', 'merged', 'regrouped', 'added', 'removed', 'unchanged'];

/** How the record that is shown came out beside another one. */
export function Comparison({ state, other }: { state: State; other: Candidate }) {
  const { data } = state;
  const found = useMemo(() => match(other.data, data), [other.data, data]);
  const name = clip(other.label, 40);
  const cells = [other.data, data].map((each) => each.record.cell?.source ?? '') as [string, string];
  return (
    <div class="nbc-comparison">
      {cells[0] !== cells[1] && (
        <Part title="The cell" note="as it was, as it is">
          <Diff before={cells[0]} after={cells[1]} label="the cell" />
        </Part>
      )}
      <Kernels state={state} other={other} pairs={found.calls} />
      <Decisions pairs={found.decisions} before={name} />
      <Ops match={found} state={state} />
      <Settings before={other.data} after={data} name={name} />
    </div>
  );
}

function Part({ title, note, children }: { title: string; note: string; children: preact.ComponentChildren }) {
  return (
    <section aria-label={title}>
      <h4 class="nbc-part-title">{title} <span class="nbc-quiet">{note}</span></h4>
      {children}
    </section>
  );
}

// -- kernels -------------------------------------------------------------------------------------

function Kernels({ state, other, pairs }: { state: State; other: Candidate; pairs: readonly Pair[] }) {
  const all = useSignal(false);
  const lacking = [other.data, state.data].filter((each) => !(each.scene?.calls.length ?? each.record.kernels.length));
  const told = TOLD.map((fate) => [pairs.filter((pair) => pair.fate === fate).length, fate] as const).filter(([number]) => number);
  const shown = all.value || pairs.length <= FEW ? pairs : pairs.filter((pair) => pair.fate !== 'unchanged');
  if (lacking.length) {
    const whose = lacking.map((each) => each.record.backend).join(' and ');
    return <Part title="Kernels" note=""><p class="nbc-empty">The record of {whose} holds no kernels; graphs, times and settings can be compared.</p></Part>;
  }
  return (
    <Part title="Kernels and calls" note={told.map(([number, fate]) => `${number} ${fate}`).join(', ') || 'none'}>
      <div class="nbc-scroll">
        <table class="nbc-table nbc-pairs">
          <thead>
            <tr>
              <th scope="col" />
              <th scope="col">{clip(other.label, 40)}</th>
              <th scope="col">this</th>
              <th scope="col" class="nbc-figure">moves</th>
              <th scope="col" class="nbc-figure">time</th>
              <th scope="col" />
            </tr>
          </thead>
          <tbody>{shown.map((pair) => <PairRow state={state} before={other.data} pair={pair} />)}</tbody>
        </table>
      </div>
      {shown.length < pairs.length && <button type="button" class="nbc-all" onClick={() => (all.value = true)}>show the {count(pairs.length - shown.length, 'unchanged call')}</button>}
    </Part>
  );
}

function PairRow({ state, before, pair }: { state: State; before: Unpacked; pair: Pair }) {
  const open = useSignal(false);
  const ids = pair.after.map((call) => call.id);
  const texts = codeOf(before, state.data, pair);
  return (
    <>
      <tr class={`nbc-pair-${pair.fate} ${ids.length ? litClass(state.lit.value, ids) : ''}`} {...(ids.length ? pointingRow(state, { ids }) : {})}>
        <td class="nbc-pair-fate"><b aria-hidden="true">{SIGNS[pair.fate]}</b> {pair.fate}</td>
        <td><Names calls={pair.before} /></td>
        <td><Names calls={pair.after} /></td>
        <td class="nbc-figure"><Change before={sum(pair.before, (call) => call.bytes)} after={sum(pair.after, (call) => call.bytes)} text={bytes} /></td>
        <td class="nbc-figure"><Change before={sum(pair.before, (call) => call.seconds)} after={sum(pair.after, (call) => call.seconds)} text={seconds} /></td>
        <td class="nbc-figure">{texts && <CodeButton open={open.value} toggle={() => (open.value = !open.value)} />}</td>
      </tr>
      {open.value && texts && (
        <tr class="nbc-pair-code">
          <td colSpan={6}><Diff {...texts} label={`code of ${pair.after[0]?.name ?? ''}`} /></td>
        </tr>
      )}
    </>
  );
}

/** The code of one kernel that became one other, where both texts are at hand. */
function codeOf(before: Unpacked, after: Unpacked, pair: Pair): { before: string; after: string } | null {
  const [left, right] = [pair.before[0], pair.after[0]];
  if (pair.fate !== 'changed' || !left || !right) return null;
  const [a, b] = [sourceOf(before, left.id), sourceOf(after, right.id)];
  return a && b && { before: a.text, after: b.text };
}

function CodeButton({ open, toggle }: { open: boolean; toggle: () => void }) {
  const click = (event: Event): void => {
    event.stopPropagation();
    toggle();
  };
  return <button type="button" class="nbc-button" aria-expanded={open} onClick={click}>code {open ? '▾' : '▸'}</button>;
}

function Names({ calls }: { calls: readonly Call[] }) {
  const all = useSignal(false);
  const shown = all.value ? calls : calls.slice(0, 4);
  return (
    <>
      {shown.map((call) => (
        <span class="nbc-pair-name" title={call.name}><span class={`nbc-chip nbc-on-${call.fate}`}>{clip(call.label, 14)}</span> {call.name === call.label ? '' : clip(call.name, 34)}</span>
      ))}
      {shown.length < calls.length && (
        <button
          type="button" class="nbc-more"
          onClick={(event) => {
            event.stopPropagation();
            all.value = true;
          }}
        >
          +{calls.length - shown.length}
        </button>
      )}
    </>
  );
}

/** A sum where every part is known. */
function sum(calls: readonly Call[], of: (call: Call) => number | null): number | null {
  const values = calls.map(of);
  return values.length && values.every((value) => value !== null) ? values.reduce((total: number, value) => total + (value ?? 0), 0) : null;
}

function Change({ before, after, text }: { before: number | null; after: number | null; text: (value: number) => string }) {
  if (before === null && after === null) return <>–</>;
  if (before === null || after === null) return <span class="nbc-quiet">{before === null ? '' : text(before)} → {after === null ? '' : text(after)}</span>;
  if (text(before) === text(after)) return <span class="nbc-quiet">{text(after)}</span>;
  return <>{text(before)} → {text(after)}{before > 0 && <span class="nbc-quiet"> {times(after / before)}</span>}</>;
}

// -- decisions, ops, settings --------------------------------------------------------------------

function Decisions({ pairs, before }: { pairs: readonly DecisionPair[]; before: string }) {
  const all = useSignal(false);
  if (!pairs.length) return null;
  const shown = all.value ? pairs : pairs.slice(0, FEW);
  return (
    <Part title="Fusion decisions that differ" note={String(pairs.length)}>
      <div class="nbc-scroll">
        <table class="nbc-table nbc-decided">
          <thead>
            <tr><th scope="col">loops</th><th scope="col">{before}</th><th scope="col">this</th></tr>
          </thead>
          <tbody>
            {shown.map((pair) => (
              <tr>
                <td class="nbc-code">{clip(pair.producer, 26)} → {clip(pair.consumer, 26)}</td>
                <td><Decided decision={pair.before} /></td>
                <td><Decided decision={pair.after} /></td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {pairs.length > FEW && <button type="button" class="nbc-all" onClick={() => (all.value = !all.value)}>{all.value ? 'show fewer' : `show all ${pairs.length}`}</button>}
    </Part>
  );
}

function Decided({ decision }: { decision: Decision | null }) {
  if (!decision) return <span class="nbc-quiet">no candidate</span>;
  return (
    <>
      <b class={decision.accepted ? 'nbc-tone-good' : 'nbc-tone-bad'}>{decision.accepted ? 'fused' : 'refused'}</b> <span class="nbc-quiet">{decision.reason}</span>
    </>
  );
}

/** Stages that are told of; the joint graph is told by the two that it is split into. */
const STAGES: Partial<Record<Match['stages'][number]['stage'], string>> = { fx: 'FX', forward: 'forward', backward: 'backward', loops: 'loops' };

/** Ops that only one side has. */
function Ops({ match: { stages }, state }: { match: Match; state: State }) {
  const told = stages.filter((each) => each.both && each.stage in STAGES);
  const differing = told.filter((each) => each.added.length || each.removed.length);
  if (!told.length) return null;
  return (
    <Part title="Ops" note={told.map((each) => `${STAGES[each.stage]}: ${each.matched} the same${each.removed.length ? `, ${each.removed.length} removed` : ''}${each.added.length ? `, ${each.added.length} added` : ''}`).join(' · ')}>
      {differing.map((each) => (
        <p class="nbc-ops">
          <span class="nbc-quiet">{STAGES[each.stage]}</span>
          {each.removed.slice(0, 2 * FEW).map((node) => <span class="nbc-op nbc-removed" title={node.text}>− {clip(node.op || node.name, 40)}</span>)}
          {each.added.slice(0, 2 * FEW).map((node) => <span class={`nbc-op nbc-added ${litClass(state.lit.value, [node.id])}`} role="button" title={node.text} {...pointing(state, { ids: [node.id] })}>+ {clip(node.op || node.name, 40)}</span>)}
          {each.removed.length + each.added.length > 4 * FEW && <span class="nbc-quiet">…</span>}
        </p>
      ))}
    </Part>
  );
}

function Settings({ before, after, name }: { before: Unpacked; after: Unpacked; name: string }) {
  const rows = settings(before, after);
  if (!rows.length) return null;
  return (
    <Part title="Options and environment that differ" note="">
      <div class="nbc-scroll">
        <table class="nbc-table nbc-decided">
          <thead>
            <tr><th scope="col" /><th scope="col">{name}</th><th scope="col">this</th></tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <tr><th scope="row">{clip(row.name, 80)}</th><td>{row.before}</td><td>{row.after}</td></tr>
            ))}
          </tbody>
        </table>
      </div>
    </Part>
  );
}
