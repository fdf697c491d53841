import { useSignal } from '@preact/signals';
import { useEffect, useRef } from 'preact/hooks';
import { Answer, isBare } from './Answer';
import { CapturePane } from './capture/CapturePane';
import { CodePane } from './CodePane';
import { ComparePane } from './ComparePane';
import { FusionPane } from './FusionPane';
import { GraphPane } from './GraphPane';
import { GuardsPane } from './GuardsPane';
import { Border } from './Border';
import { Away, Detached } from './Detached';
import { Head } from './Head';
import { Pane, PaneTools, useLift } from './Pane';
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
  const place = useRef<HTMLDivElement>(null);
  const how = useLift(state, 'all', place);
  const away = state.layout.windowOf('all');
  const look = how ? `nbc-lifted nbc-lifted-${how}` : '';
  const style = how === 'beside' ? { '--nbc-side': `${100 * state.layout.side.value}vw` } : {};
  const escape = (): void => (how ? state.layout.restore() : state.pin(null));
  if (away) {
    return (
      <>
        <Away state={state} name="the explorer" />
        <Detached state={state} away={away} label="explorer" className="nbc-app"><Whole state={state} /></Detached>
      </>
    );
  }
  return (
    <>
      <div ref={place} class={`nbc-app ${look}`} style={style} onKeyDown={(event) => event.key === 'Escape' && escape()} onClick={() => state.pin(null)}>
        {how === 'beside' && <Border state={state} border="side" />}
        <Whole state={state} />
      </div>
      {how === 'beside' && <InItsPlace state={state} />}
    </>
  );
}

function Whole({ state }: { state: State }) {
  const open = state.open.value;
  return (
    <>
      <Head state={state} />
      <Answer state={state} />
      <PlayBar state={state} />
      {open && <Workbench state={state} />}
      {(open || !isBare(state)) && <Drawer state={state} />}
      <Announcer state={state} />
    </>
  );
}

/** What is left where the explorer was. */
function InItsPlace({ state }: { state: State }) {
  return (
    <p class="nbc-empty">
      The explorer stands beside the page.{' '}
      <button type="button" class="nbc-button" onClick={() => state.layout.restore()}>Put it back</button>
    </p>
  );
}

/** What the stages made, side by side: the graph and the code. */
function Workbench({ state }: { state: State }) {
  const { layout } = state;
  const { split, height } = layout;
  const lifted = layout.lifted.value;
  const gone = lifted ? `nbc-without-${lifted.pane} ${lifted.away ? 'nbc-away' : ''}` : '';
  const style = {
    '--nbc-left': `${split.value}fr`, '--nbc-right': `${1 - split.value}fr`,
    ...(height.value === null ? {} : { '--nbc-height': `${height.value}px` }),
  };
  return (
    <>
      <div class="nbc-bench-head">
        <Strip state={state} />
        <PaneTools state={state} pane="all" />
      </div>
      <div class={`nbc-panes ${state.wide.value ? 'nbc-wide' : ''} ${gone}`} style={style}>
        <Pane state={state} pane="graph" className="nbc-pane nbc-pane-graph" label="graph">
          <GraphPane state={state} />
        </Pane>
        <Border state={state} border="panes" />
        <Pane state={state} pane="code" className="nbc-pane nbc-pane-code" label="code">
          <CodePane state={state} />
        </Pane>
      </div>
      <Border state={state} border="height" />
    </>
  );
}

/** The tabs of all details; while the explorer is closed they are its doors. */
function Drawer({ state }: { state: State }) {
  const open = state.open.value;
  const Shown = PANELS[state.panel.value];
  return (
    <Pane state={state} pane="details" className="nbc-drawer" label={open ? state.panel.value : 'details'}>
      <Tabs label="details" tabs={panels(state)} chosen={open ? state.panel.value : null} choose={(id) => state.enter(id)}>
        {open && <PaneTools state={state} pane="details" />}
        <button type="button" class="nbc-open" aria-expanded={open} onClick={() => (state.open.value = !open)}>
          {open ? 'Close ▴' : 'Graph and kernels ▾'}
        </button>
      </Tabs>
      {open && (
        <div class="nbc-panel" role="tabpanel" aria-label={state.panel.value}>
          <Shown state={state} />
        </div>
      )}
    </Pane>
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
