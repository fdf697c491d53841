import { useSignal, type Signal } from '@preact/signals';
import type { ComponentChildren } from 'preact';
import { useEffect } from 'preact/hooks';

const PACE_MS = 900;

/** Steps that one may want to go to straight away: `key` goes to the next of them, with shift to the one before. */
export interface Mark {
  name: string;
  key: string;
  at: readonly number[];
}

interface Props {
  /** What the section is called, and one step of it. */
  label: string;
  noun: string;
  count: number;
  step: Signal<number>;
  go: (to: number) => void;
  /** Of the present step, in words. */
  said: string;
  marks?: readonly Mark[];
  /** Whether there is a button that goes on by itself. */
  plays?: boolean;
  children?: ComponentChildren;
}

/** Buttons, a slider and keys that go through steps; what they show is inside, so that the keys work there too. */
export function Steps(props: Props) {
  const { noun, count, step, said, marks = [] } = props;
  const playing = useSignal(false);
  const last = count - 1;
  const go = (to: number): void => {
    const next = Math.max(0, Math.min(last, to));
    if (next !== step.value) props.go(next);
  };
  useEffect(() => {
    if (!playing.value) return undefined;
    const timer = setInterval(() => {
      if (step.value >= last) playing.value = false;
      else go(step.value + 1);
    }, PACE_MS);
    return () => clearInterval(timer);
  }, [playing.value]);
  const stop = (to: number) => () => {
    playing.value = false;
    go(to);
  };
  const onKeyDown = (event: KeyboardEvent): void => {
    const to = asked(event, step.value, last, marks);
    if (to === null) return;
    event.preventDefault();
    event.stopPropagation();
    stop(to)();
  };
  const at = step.value;
  return (
    <section class="nbc-stepper" aria-label={props.label} onKeyDown={onKeyDown}>
      <div class="nbc-steps">
        <Button label={`first ${noun}`} sign="|◀" press={stop(0)} off={at === 0} />
        <Button label={`${noun} before`} sign="◀" press={stop(at - 1)} off={at === 0} />
        {props.plays && (
          <Button
            label={playing.value ? 'pause' : `play the ${noun}s`}
            sign={playing.value ? '❚❚' : '▶▶'}
            press={() => {
              if (!playing.value && at >= last) go(0);
              playing.value = !playing.value;
            }}
            off={last < 1}
          />
        )}
        <Button label={`next ${noun}`} sign="▶" press={stop(at + 1)} off={at === last} />
        <Button label={`last ${noun}`} sign="▶|" press={stop(last)} off={at === last} />
        {marks.map((mark) => {
          const to = next(mark.at, at);
          return <Button label={`next ${mark.name} (${mark.key})`} sign={`▶ ${mark.name}`} press={stop(to ?? at)} off={to === null} />;
        })}
        <input
          type="range"
          min={0}
          max={last}
          value={at}
          aria-label={noun}
          aria-valuetext={`${at + 1} of ${count}: ${said}`}
          onInput={(event) => stop(Number(event.currentTarget.value))()}
        />
        <span class="nbc-quiet">{(at + 1).toLocaleString('en')} of {count.toLocaleString('en')}</span>
      </div>
      {props.children}
    </section>
  );
}

function Button({ label, sign, press, off }: { label: string; sign: string; press: () => void; off: boolean }) {
  return (
    <button type="button" class="nbc-button nbc-step-button" aria-label={label} title={label} disabled={off} onClick={press}>
      {sign}
    </button>
  );
}

/** The step that a key asks for; null if it asks for none. */
function asked(event: KeyboardEvent, at: number, last: number, marks: readonly Mark[]): number | null {
  if (event.ctrlKey || event.metaKey || event.altKey) return null;
  const by: Record<string, number> = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: last };
  const to = by[event.key];
  if (to !== undefined) return to;
  const mark = marks.find((each) => each.key === event.key.toLowerCase());
  if (!mark) return null;
  return (event.shiftKey ? before(mark.at, at) : next(mark.at, at)) ?? at;
}

/** The first of these (in order) after `at`. */
function next(places: readonly number[], at: number): number | null {
  return places.find((place) => place > at) ?? null;
}

function before(places: readonly number[], at: number): number | null {
  return places.filter((place) => place < at).pop() ?? null;
}
