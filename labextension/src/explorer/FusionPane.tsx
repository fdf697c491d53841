import { signal, useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { Inside } from './fusion/Inside';
import { Replay } from './fusion/replay';
import { rowsOf } from './fusion/rows';
import { Stepper } from './fusion/Stepper';
import { Table, type TableState } from './fusion/Table';
import type { Play } from './play';
import type { State } from './state';

const tables = new WeakMap<Play, TableState>();

/** What was fused, what was not and why; how it came about; what came of it. */
export function FusionPane({ state }: { state: State }) {
  const { record } = state.data;
  const rows = useMemo(() => rowsOf(state), [state]);
  const replay = useMemo(() => new Replay(record), [record]);
  const step = useSignal(0);
  if (!rows.length) return <p class="nbc-empty">{nothing(state)}</p>;
  return (
    <div class="nbc-fusion">
      <Table state={state} rows={rows} table={tableOf(state.play)} step={step} />
      <div class="nbc-aside">
        <h3 class="nbc-pane-title">Step by step</h3>
        <Stepper state={state} replay={replay} step={step} />
        <h3 class="nbc-pane-title">Inside the kernels</h3>
        <Inside state={state} />
      </div>
    </div>
  );
}

function tableOf(play: Play): TableState {
  let table = tables.get(play);
  if (!table) tables.set(play, (table = { choice: signal({ shown: 'all', sorted: 'order', search: '' }), switched: null }));
  return table;
}

function nothing(state: State): string {
  const { record } = state.data;
  if (record.backend !== 'nbcompile') return `${record.backend} does not say what it fuses: only nbcompile's own decisions are recorded.`;
  return 'There was nothing to fuse: no two loops read from each other.';
}
