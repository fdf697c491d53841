import { useSignal } from '@preact/signals';
import { useEffect, useMemo } from 'preact/hooks';
import type { SceneRoofline, Timing } from '../record/generated/scene';
import type { Charts } from './host';
import type { State } from './state';
import { Tabs } from './Tabs';
import { Chart } from './timing/Chart';
import { bars, breakEven, counted, distribution, inWords, payers, paysInWords, placed } from './timing/contestants';
import { roofline } from './timing/roofline';
import { Calls, Contestants } from './timing/tables';
import { Timeline } from './timing/Timeline';

/** What each call took, what the compile cost, and what bounds each kernel. */
export function TimingPane({ state }: { state: State }) {
  const { scene } = state.data;
  const chosen = useSignal(0);
  const charts = useSignal<Charts | null>(null);
  const failed = useSignal('');
  const drawn = scene !== null && (scene.timings.length > 0 || scene.roofline !== null);
  useEffect(() => {
    if (!drawn) return;
    let gone = false;
    state.host.charts().then(
      (loaded) => !gone && (charts.value = loaded),
      (error: unknown) => !gone && (failed.value = error instanceof Error ? error.message : String(error)),
    );
    return () => {
      gone = true;
    };
  }, []);
  if (!scene) return <p class="nbc-empty">This record was saved without what is drawn here. Its text has the times.</p>;
  const timing = scene.timings[chosen.value] ?? scene.timings[0];
  return (
    <div class="nbc-timing">
      {scene.timings.length > 1 && (
        <Tabs label="what was timed" tabs={scene.timings.map((each, place) => ({ id: String(place), label: each.what }))} chosen={String(chosen.value)} choose={(id) => (chosen.value = Number(id))} />
      )}
      {drawn && !charts.value && (
        <p class="nbc-empty" role="status">{failed.value ? `The charts could not be loaded (${failed.value}); the tables have their numbers.` : 'loading the charts …'}</p>
      )}
      {timing ? <Timed key={timing.what} state={state} timing={timing} charts={charts.value} /> : <p class="nbc-empty">{scene.pending ? 'The first times are on their way.' : 'No call was timed.'}</p>}
      <Timeline state={state} />
      <div class="nbc-chart-row">
        <div class="nbc-timing-calls">
          <Calls state={state} />
        </div>
        {charts.value && scene.roofline && <Roof state={state} charts={charts.value} roof={scene.roofline} />}
      </div>
    </div>
  );
}

function Timed({ state, timing, charts }: { state: State; timing: Timing; charts: Charts | null }) {
  const { rows } = timing;
  const drawn = useMemo(() => placed(rows), [rows]);
  const draws = useMemo(() => {
    const timed = counted(drawn);
    const samples = timed.map((row) => state.data.record.measurements[row.measurement]?.steady ?? []);
    return { bars: bars(drawn), breakEven: breakEven(drawn), samples: distribution(timed, samples), sampled: samples.some((each) => each.length > 4) };
  }, [rows]);
  return (
    <>
      <h4 class="nbc-timing-title">{timing.what} <span class="nbc-quiet">{timing.about}</span></h4>
      {charts && (
        <div class="nbc-chart-row">
          <Chart state={state} charts={charts} title="One call" summary={inWords(rows)} height={Math.max(60, 8 + 34 * rows.length)} draw={draws.bars} />
          {draws.sampled && <Chart state={state} charts={charts} title="Every sample" summary={`of ${inWords(counted(rows))}`} height={30 + 34 * counted(drawn).length} draw={draws.samples} />}
          {payers(drawn).length > 0 && <Chart state={state} charts={charts} title="Ahead of eager, compile included" summary={paysInWords(rows)} height={190} draw={draws.breakEven} />}
        </div>
      )}
      <Contestants state={state} rows={rows} />
    </>
  );
}

function Roof({ state, charts, roof }: { state: State; charts: Charts; roof: SceneRoofline }) {
  const draw = useMemo(() => roofline(roof, (id) => state.links.kernels.get(id)?.name ?? ''), [roof]);
  const measured = roof.points.some((point) => point.measured);
  const launching = roof.points.some((point) => point.bound === 'launch');
  const predicted = roof.points.some((point) => !point.measured);
  return (
    <div class="nbc-roof">
      <Chart state={state} charts={charts} title="Roofline" summary={`${roof.title}: ${roof.summary}`} height={300} draw={draw} />
      <p class="nbc-quiet">
        {roof.title}: {roof.summary}. {measured && '● measured '}{predicted && '○ predicted '}{launching && '▽ lower still, mostly launching'}
      </p>
    </div>
  );
}
