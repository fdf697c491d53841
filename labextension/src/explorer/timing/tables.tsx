import { useSignal } from '@preact/signals';
import type { Measurement } from '../../record/generated/record';
import type { Call, ScenePoint, TimingRow } from '../../record/generated/scene';
import { compared, spreadIn } from '../spread';
import { litClass, pointingRow, type State } from '../state';
import { bytes, count, percent, quantity, seconds, times } from '../units';
import { contestant } from './contestants';

/** Calls shown before one asks for all. */
const FEW = 10;

/** All numbers of the contestants: what the charts draw, and what they do not. */
export function Contestants({ state, rows }: { state: State; rows: readonly TimingRow[] }) {
  const { measurements } = state.data.record;
  const base = rows.find((row) => row.contestant === 'eager' && row.counts);
  return (
    <div class="nbc-scroll" tabIndex={0} role="region" aria-label="times of all contestants">
      <table class="nbc-table nbc-timings">
        <thead>
          <tr>
            <th scope="col">contestant</th>
            <th scope="col" class="nbc-figure">one call</th>
            <th scope="col" class="nbc-figure">p10 – p90</th>
            <th scope="col" class="nbc-figure">against eager</th>
            <th scope="col" class="nbc-figure" title="the first call after the compile">first call</th>
            <th scope="col" class="nbc-figure" title="a compile with every cache empty">compile, cold</th>
            <th scope="col" class="nbc-figure" title="a compile with caches full">warm</th>
            <th scope="col" class="nbc-figure" title="calls until the cold compile has paid for itself">pays off after</th>
            <th scope="col" class="nbc-figure">graphs</th>
            <th scope="col" class="nbc-figure">breaks</th>
            <th scope="col" class="nbc-figure">kernels</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <Contestant row={row} held={measurements[row.measurement]} base={base} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function Contestant({ row, held, base }: { row: TimingRow; held: Measurement | undefined; base: TimingRow | undefined }) {
  const eager = row.contestant === 'eager';
  const key = row.own ? 'fused' : eager ? 'eager' : 'library';
  return (
    <tr>
      <th scope="row" class={row.own ? 'nbc-own' : ''}><i class={`nbc-key nbc-on-${key}`} />{contestant(row)}{row.counts && row.reason && <em class="nbc-tone-bad"> {row.reason}</em>}</th>
      {row.counts ? <Figures row={row} base={base} /> : <td colSpan={7} class="nbc-tone-bad">{row.reason.startsWith('raised ') ? '' : 'did not run compiled: '}{row.reason}</td>}
      <td class="nbc-figure">{eager ? '–' : held?.graphs}</td>
      <td class="nbc-figure">{eager ? '–' : held?.breaks}</td>
      <td class="nbc-figure">{held?.kernels ?? '–'}</td>
    </tr>
  );
}

function Figures({ row, base }: { row: TimingRow; base: TimingRow | undefined }) {
  const [before, now] = [spreadIn(base), spreadIn(row)];
  const against = before && now && row !== base && row.ratio !== null ? compared(before, now) : null;
  return (
    <>
      <td class="nbc-figure"><b>{seconds(row.median)}</b></td>
      <td class="nbc-figure">{row.p10 === null ? '–' : `${seconds(row.p10)} – ${seconds(row.p90)}`}</td>
      <td class="nbc-figure" title={against?.text}>{against && row.ratio !== null ? <b class={`nbc-tone-${against.tone}`}>{times(row.ratio)}</b> : '–'}</td>
      <td class="nbc-figure">{seconds(row.first)}</td>
      <td class="nbc-figure">{seconds(row.cold)}</td>
      <td class="nbc-figure">{seconds(row.warm)}</td>
      <td class="nbc-figure">{row.never ? 'never' : row.break_even === null ? '–' : count(row.break_even, 'call')}</td>
    </>
  );
}

/** Every kernel, library call and fallback, the heaviest first. */
export function Calls({ state }: { state: State }) {
  const all = useSignal(false);
  const { scene } = state.data;
  const calls = scene?.calls ?? [];
  if (!calls.length) return null;
  const points = new Map((scene?.roofline?.points ?? []).map((point) => [point.kernel, point]));
  const sorted = [...calls].sort((a, b) => (spent(b) ?? -1) - (spent(a) ?? -1) || b.bytes - a.bytes);
  const timed = calls.some((call) => spent(call) !== null);
  const ordered = timed && !calls.every((call) => spent(call) !== null) ? [...calls].sort((a, b) => b.bytes - a.bytes) : sorted;
  const shown = all.value ? ordered : ordered.slice(0, FEW);
  const heaviest = Math.max(1e-9, ...calls.map((call) => call.share));
  // Where nothing was timed and launching is free, a predicted time is the limit itself.
  const limits = calls.some((call) => points.has(call.id) && points.get(call.id)?.limit !== spent(call));
  return (
    <>
      <div class="nbc-scroll" tabIndex={0} role="region" aria-label="calls">
        <table class="nbc-table nbc-calls">
          <thead>
            <tr>
              <th scope="col">call</th>
              <th scope="col" class="nbc-figure">line</th>
              <th scope="col" class="nbc-figure">moves</th>
              <th scope="col" />
              {limits && <th scope="col" class="nbc-figure" title="the least time that its bytes and operations take on this chip">limit</th>}
              <th scope="col" class="nbc-figure">time</th>
              <th scope="col">bound by</th>
              <th scope="col" class="nbc-figure">computes</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((call) => {
              const point = points.get(call.id);
              return (
                <tr class={litClass(state.lit.value, [call.id])} {...pointingRow(state, { ids: [call.id] })}>
                  <td class="nbc-name"><span class={`nbc-chip nbc-on-${call.fate}`}>{call.label}</span> {call.name === call.label ? '' : call.name}</td>
                  <td class="nbc-figure">{call.lines.join(', ')}</td>
                  <td class="nbc-figure">{bytes(call.bytes)}</td>
                  <td title={`${percent(call.share)} of the bytes moved`}><span class="nbc-share"><i style={{ width: `${(100 * call.share) / heaviest}%` }} /></span></td>
                  {limits && <td class="nbc-figure">{seconds(point?.limit)}</td>}
                  <td class="nbc-figure">{time(call, point)}</td>
                  <td class="nbc-quiet nbc-nowrap">{point ? (point.bound === 'launch' ? 'launching' : point.bound) : fates[call.fate]}</td>
                  <td class="nbc-figure">{point?.flops ? quantity(point.flops, 'flop') : '–'}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {calls.length > FEW && (
        <button type="button" class="nbc-all" aria-expanded={all.value} onClick={() => (all.value = !all.value)}>
          {all.value ? `show the ${FEW} heaviest` : `show all ${count(calls.length, 'call')}`}
        </button>
      )}
    </>
  );
}

const fates: Partial<Record<Call['fate'], string>> = { library: 'library', fallback: 'torch' };

function spent(call: Call): number | null {
  return call.seconds ?? call.predicted;
}

function time(call: Call, point: ScenePoint | undefined): string {
  if (call.seconds === null) return call.predicted === null ? '–' : `about ${seconds(call.predicted)}`;
  return point?.share ? `${seconds(call.seconds)}, ${percent(point.share)} of the limit` : seconds(call.seconds);
}
