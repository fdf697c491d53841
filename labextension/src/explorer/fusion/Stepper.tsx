import { useSignal, type Signal } from '@preact/signals';
import { useEffect } from 'preact/hooks';
import { litClass, pointing, type State } from '../state';
import { bytes, clip, count } from '../units';
import type { Moment, Replay } from './replay';

const PACE_MS = 900;
const CHIPS = 18;

/** The decisions in the order in which they were made: what was before each, what after, and why. */
export function Stepper({ state, replay, step }: { state: State; replay: Replay; step: Signal<number> }) {
  const playing = useSignal(false);
  const last = replay.steps - 1;
  const go = (to: number): void => {
    const next = Math.max(0, Math.min(last, to));
    if (next === step.value) return;
    step.value = next;
    const decision = state.data.record.decisions[next];
    if (decision) state.pin({ ids: [decision.id, decision.producer, decision.consumer] });
  };
  useEffect(() => {
    if (!playing.value) return undefined;
    const timer = setInterval(() => {
      if (step.value >= last) playing.value = false;
      else go(step.value + 1);
    }, PACE_MS);
    return () => clearInterval(timer);
  }, [playing.value]);
  const moment = replay.at(step.value);
  if (!moment) return null;
  const stop = (to: number) => () => {
    playing.value = false;
    go(to);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const by: Record<string, number> = { ArrowLeft: step.value - 1, ArrowRight: step.value + 1, Home: 0, End: last };
    const to = by[event.key];
    if (to === undefined) return;
    event.preventDefault();
    stop(to)();
  };
  return (
    <section class="nbc-stepper" aria-label="decisions, one by one" onKeyDown={onKeyDown}>
      <div class="nbc-steps">
        <Step label="first decision" sign="|◀" press={stop(0)} off={step.value === 0} />
        <Step label="decision before" sign="◀" press={stop(step.value - 1)} off={step.value === 0} />
        <Step
          label={playing.value ? 'pause' : 'play the decisions'}
          sign={playing.value ? '❚❚' : '▶▶'}
          press={() => {
            if (!playing.value && step.value >= last) go(0);
            playing.value = !playing.value;
          }}
          off={last < 1}
        />
        <Step label="next decision" sign="▶" press={stop(step.value + 1)} off={step.value === last} />
        <Step label="last decision" sign="▶|" press={stop(last)} off={step.value === last} />
        <input
          type="range"
          min={0}
          max={last}
          value={step.value}
          aria-label="decision"
          aria-valuetext={`${step.value + 1} of ${replay.steps}: ${said(state, moment)}`}
          onInput={(event) => stop(Number(event.currentTarget.value))()}
        />
        <span class="nbc-quiet">{step.value + 1} of {replay.steps}</span>
      </div>
      <p class="nbc-moment">
        <b class={moment.decision.accepted ? 'nbc-tone-good' : 'nbc-tone-bad'}>{moment.decision.accepted ? 'fused' : 'refused'}</b>{' '}
        <span class="nbc-quiet">{moment.decision.reason}</span>
      </p>
      <Groups state={state} moment={moment} />
      <p class="nbc-quiet nbc-moment">
        {moment.decision.accepted ? 'saves' : 'would save'} <b>{bytes(moment.decision.bytes_saved)}</b> · <b>{bytes(moment.saved)}</b> saved so
        far · {count(moment.groups, 'group')} of loops now
      </p>
    </section>
  );
}

function Step({ label, sign, press, off }: { label: string; sign: string; press: () => void; off: boolean }) {
  return (
    <button type="button" class="nbc-button nbc-step-button" aria-label={label} title={label} disabled={off} onClick={press}>
      {sign}
    </button>
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
