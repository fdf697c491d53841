import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Answer, isBare } from './Answer';
import { CapturePane } from './capture/CapturePane';
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
  capture: CapturePane,
  timing: TimingPane,
  guards: GuardsPane,
  play: PlayPane,
  compare: ComparePane,
  text: TextPane,
};

/** The whole explorer of one record: the answer first, and all else one click further. */
export function App({ state }: { state: State }) {
  const open = state.open.value;
  return (
    <div class="nbc-app" onKeyDown={(event) => event.key === 'Escape' && state.pin(null)} onClick={() => state.pin(null)}>
      <Head state={state} />
      <Answer state={state} />
      <PlayBar state={state} />
      {open && <Workbench state={state} />}
      {(open || !isBare(state)) && <Drawer state={state} />}
      <Announcer state={state} />
    </div>
  );
}

/** What the stages made, side by side: the graph and the code. */
function Workbench({ state }: { state: State }) {
  return (
    <>
      <Strip state={state} />
      <div class={`nbc-panes ${state.wide.value ? 'nbc-wide' : ''}`}>
        <section class="nbc-pane nbc-pane-graph" aria-label="graph">
          <GraphPane state={state} />
        </section>
        <section class="nbc-pane nbc-pane-code" aria-label="code">
          <CodePane state={state} />
        </section>
      </div>
    </>
  );
}

/** The tabs of all details; while the explorer is closed they are its doors. */
function Drawer({ state }: { state: State }) {
  const open = state.open.value;
  const Shown = PANELS[state.panel.value];
  return (
    <section class="nbc-drawer" aria-label={open ? state.panel.value : 'details'} onClick={(event) => event.stopPropagation()}>
      <Tabs label="details" tabs={panels(state)} chosen={open ? state.panel.value : null} choose={(id) => state.enter(id)}>
        <button type="button" class="nbc-open" aria-expanded={open} onClick={() => (state.open.value = !open)}>
          {open ? 'Close ▴' : 'Graph and kernels ▾'}
        </button>
      </Tabs>
      {open && (
        <div class="nbc-panel" role="tabpanel" aria-label={state.panel.value}>
          <Shown state={state} />
        </div>
      )}
    </section>
  );
}

function panels(state: State): Tab<Panel>[] {
  const { record } = state.data;
  const fused = record.decisions.filter((each) => each.accepted).length;
  const broken = record.breaks.length + record.recompiles.length;
  return [
    { id: 'fusion', label: `Fusion ${fused} of ${record.decisions.length}` },
    { id: 'capture', label: 'Capture' },
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
