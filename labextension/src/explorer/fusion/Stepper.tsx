import type { Signal } from '@preact/signals';
import { Steps } from '../capture/Steps';
import { litClass, pointing, type State } from '../state';
import { bytes, clip, count } from '../units';
import type { Moment, Replay } from './replay';

const CHIPS = 18;

/** The decisions in the order in which they were made: what was before each, what after, and why. */
export function Stepper({ state, replay, step }: { state: State; replay: Replay; step: Signal<number> }) {
  const moment = replay.at(step.value);
  if (!moment) return null;
  const go = (to: number): void => {
    step.value = to;
    const decision = state.data.record.decisions[to];
    if (decision) state.pin({ ids: [decision.id, decision.producer, decision.consumer] });
  };
  return (
    <Steps label="decisions, one by one" noun="decision" count={replay.steps} step={step} go={go} said={said(state, moment)} plays>
      <p class="nbc-moment">
        <b class={moment.decision.accepted ? 'nbc-tone-good' : 'nbc-tone-bad'}>{moment.decision.accepted ? 'fused' : 'refused'}</b>{' '}
        <span class="nbc-quiet">{moment.decision.reason}</span>
      </p>
      <Groups state={state} moment={moment} />
      <p class="nbc-quiet nbc-moment">
        {moment.decision.accepted ? 'saves' : 'would save'} <b>{bytes(moment.decision.bytes_saved)}</b> · <b>{bytes(moment.saved)}</b> saved so
        far · {count(moment.groups, 'group')} of loops now
      </p>
    </Steps>
  );
}

function said(state: State, { decision }: Moment): string {
  const name = (id: string): string => state.links.nodes.get(id)?.name ?? id;
  return `${name(decision.producer)} and ${name(decision.consumer)} ${decision.accepted ? 'fused' : 'refused'}, ${decision.reason}`;
}

function Groups({ state, moment }: { state: State; moment: Moment }) {
  const { decision, before, after } = moment;
  const together = before.length === 1;
  return (
    <div class="nbc-joining">
      <div class="nbc-when">
        <span class="nbc-quiet">before</span>
        {before.map((group, place) => (
          <>
            {place > 0 && <span class="nbc-join" aria-hidden="true">+</span>}
            <Group state={state} ids={group} pair={[decision.producer, decision.consumer]} fused={together} />
          </>
        ))}
      </div>
      <div class="nbc-when">
        <span class="nbc-quiet">after</span>
        {together && decision.accepted ? (
          <span class="nbc-quiet">the same: they were in one group already</span>
        ) : (
          after.map((group, place) => (
            <>
              {place > 0 && <span class="nbc-join nbc-tone-bad" aria-label="apart">✕</span>}
              <Group state={state} ids={group} pair={[decision.producer, decision.consumer]} fused={decision.accepted} />
            </>
          ))
        )}
      </div>
    </div>
  );
}

function Group({ state, ids, pair, fused }: { state: State; ids: readonly string[]; pair: readonly string[]; fused: boolean }) {
  // The two that the decision is about are among those shown, however many there are.
  const shown = ids.length > CHIPS ? ids.filter((id, place) => pair.includes(id) || place < CHIPS - pair.length) : ids;
  return (
    <span class={`nbc-loops ${fused ? 'nbc-joined' : ''}`}>
      {shown.map((id) => (
        <span class={`nbc-loop ${pair.includes(id) ? 'nbc-of-pair' : ''} ${litClass(state.lit.value, [id])}`} role="button" {...pointing(state, { ids: [id] })}>
          {clip(state.links.nodes.get(id)?.name ?? id, 22)}
        </span>
      ))}
      {shown.length < ids.length && <span class="nbc-quiet">+{ids.length - shown.length}</span>}
    </span>
  );
}
