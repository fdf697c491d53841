import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { CellPane } from './CellPane';
import { CodePane } from './CodePane';
import { ComparePane } from './ComparePane';
import { FusionPane } from './FusionPane';
import { GraphPane } from './GraphPane';
import { GuardsPane } from './GuardsPane';
import { Head } from './Head';
import { PlayBar } from './PlayBar';
import { PlayPane } from './PlayPane';
import type { Panel, State } from './state';
import { Strip } from './Strip';
import { Tabs, type Tab } from './Tabs';
import { TextPane } from './TextPane';
import { TimingPane } from './TimingPane';
import { count } from './units';

const PANELS: Record<Panel, (props: { state: State }) => preact.ComponentChild> = {
  fusion: FusionPane,
  timing: TimingPane,
  guards: GuardsPane,
  play: PlayPane,
  compare: ComparePane,
  text: TextPane,
};

/** The whole explorer of one record. */
export function App({ state }: { state: State }) {
  const Shown = PANELS[state.panel.value];
  return (
    <div class="nbc-app" onKeyDown={(event) => event.key === 'Escape' && state.pin(null)} onClick={() => state.pin(null)}>
      <Head state={state} />
      <Strip state={state} />
      <PlayBar state={state} />
      <div class={`nbc-panes ${state.wide.value ? 'nbc-wide' : ''}`}>
        <section class="nbc-pane nbc-pane-cell" aria-label="cell">
          <h3 class="nbc-pane-title">Your cell</h3>
          <CellPane state={state} />
        </section>
        <section class="nbc-pane nbc-pane-graph" aria-label="graph">
          <GraphPane state={state} />
        </section>
        <section class="nbc-pane nbc-pane-code" aria-label="code">
          <CodePane state={state} />
        </section>
      </div>
      <section class="nbc-drawer" aria-label={state.panel.value} onClick={(event) => event.stopPropagation()}>
        <Tabs label="details" tabs={panels(state)} chosen={state.panel.value} choose={(id) => (state.panel.value = id)} />
        <div class="nbc-panel" role="tabpanel" aria-label={state.panel.value}>
          <Shown state={state} />
        </div>
      </section>
      <Announcer state={state} />
    </div>
  );
}

function panels(state: State): Tab<Panel>[] {
  const { record } = state.data;
  const fused = record.decisions.filter((each) => each.accepted).length;
  const broken = record.breaks.length + record.recompiles.length;
  return [
    { id: 'fusion', label: `Fusion ${fused} of ${record.decisions.length}` },
    { id: 'timing', label: 'Timing' },
    { id: 'guards', label: `Guards ${record.guards.length}${broken ? `, breaks ${broken}` : ''}` },
    { id: 'play', label: 'Play' },
    { id: 'compare', label: 'Compare' },
    { id: 'text', label: 'Text' },
  ];
}

/** Says what a pin lit, to a reader who does not see it. */
function Announcer({ state }: { state: State }) {
  const text = useSignal('');
  const first = useRef(true);
  const pinned = state.pinned.value;
  useEffect(() => {
    if (first.current) first.current = false;
    else if (!pinned) text.value = 'nothing is chosen';
    else {
      const { ids, lines } = state.around(pinned);
      const kernels = state.data.record.kernels.filter((kernel) => ids.has(kernel.id)).map((kernel) => kernel.name);
      text.value = `${count(lines.size, 'line')} of the cell; ${kernels.length ? kernels.join(', ') : 'no kernel'}`;
    }
  }, [pinned]);
  return <div class="nbc-unseen" aria-live="polite">{text}</div>;
}
