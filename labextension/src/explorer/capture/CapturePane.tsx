import { signal, useSignal, type Signal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import { Replay } from '../fusion/replay';
import { Stepper } from '../fusion/Stepper';
import type { State } from '../state';
import { Tabs, type Tab } from '../Tabs';
import { StoryView } from './StoryView';
import { codegen, lowering, passes } from './stories';
import { WalkView } from './WalkView';

type Stage = 'walk' | 'passes' | 'lowering' | 'fusion' | 'codegen';

const TABS: Tab<Stage>[] = [
  { id: 'walk', label: "Dynamo's walk" },
  { id: 'passes', label: 'Passes' },
  { id: 'lowering', label: 'Lowering' },
  { id: 'fusion', label: 'Fusion' },
  { id: 'codegen', label: 'Codegen' },
];
const chosen = new WeakMap<State['play'], Signal<Stage>>();

/** Every stage of the compile, one step at a time: Dynamo's walk, then our own passes. */
export function CapturePane({ state }: { state: State }) {
  let stage = chosen.get(state.play);
  if (!stage) chosen.set(state.play, (stage = signal<Stage>(state.data.record.walks.length ? 'walk' : 'passes')));
  const shown = stage;
  return (
    <div class="nbc-capture">
      <Tabs label="stages of the compile" tabs={TABS} chosen={shown.value} choose={(id) => (shown.value = id)} />
      <Stepped key={`${state.data.record.id} ${shown.value}`} state={state} stage={shown.value} />
    </div>
  );
}

function Stepped({ state, stage }: { state: State; stage: Stage }) {
  const { record } = state.data;
  const story = useMemo(() => (stage === 'passes' ? passes : stage === 'lowering' ? lowering : codegen)(record), [record, stage]);
  if (stage === 'walk') return <WalkView state={state} />;
  if (stage === 'fusion') return <Decided state={state} />;
  return <StoryView state={state} story={story} empty={EMPTY[stage]} />;
}

const EMPTY = {
  passes: 'This record has no passes.',
  lowering: 'Nothing was lowered: this record has no loops.',
  codegen: 'No kernel of this record says what its lines were made for.',
};

function Decided({ state }: { state: State }) {
  const replay = useMemo(() => new Replay(state.data.record), [state]);
  const step = useSignal(0);
  if (!replay.steps) return <p class="nbc-empty">No decision of fusion is recorded.</p>;
  return <Stepper state={state} replay={replay} step={step} />;
}
