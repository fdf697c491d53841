import { useSignal } from '@preact/signals';
import { useMemo } from 'preact/hooks';
import type { Kernel } from '../../record/generated/record';
import { State } from '../state';
import { clip } from '../units';
import { CodeText } from './CodeText';
import { compiledFor, compileFor, counterparts, textFor, type Elsewhere } from './elsewhere';
import { NotThere } from './NotThere';

/** A text that the record does not have, once a live kernel has made it; before that, what it takes. */
export function FromElsewhere({ state, kernel, wanted }: { state: State; kernel: Kernel; wanted: Elsewhere }) {
  const data = compiledFor(state, wanted);
  const other = useMemo(() => data && new State(data, { ...state.host, needs: '' }, undefined, state), [data]);
  return other ? <Shown state={state} kernel={kernel} wanted={wanted} other={other} /> : <NotYet state={state} wanted={wanted} />;
}

function Shown({ state, kernel, wanted, other }: { state: State; kernel: Kernel; wanted: Elsewhere; other: State }) {
  const found = useMemo(() => counterparts(state, kernel, other), [kernel, other]);
  const place = useSignal(0);
  const shown = found[Math.min(place.value, found.length - 1)];
  if (!shown) {
    return <p class="nbc-empty nbc-no-assembly">Compiled so, none of its work is in a generated kernel: {wanted.about} is library calls.</p>;
  }
  const text = textFor(other, shown, wanted);
  if (!text) {
    return <p class="nbc-empty nbc-no-assembly">{wanted.title} was not made: the tools that make it are not on the machine of the kernel.</p>;
  }
  return (
    <div class="nbc-elsewhere">
      <p class="nbc-quiet nbc-elsewhere-about">
        {wanted.about}{' '}
        {found.length > 1 && (
          <select aria-label="kernel that does a part of it" value={place.value} onClick={(event) => event.stopPropagation()} onChange={(event) => (place.value = Number(event.currentTarget.value))}>
            {found.map((each, at) => <option value={at}>{clip(each.name, 40)}</option>)}
          </select>
        )}
      </p>
      <CodeText
        key={`${shown.id} ${text.language}`} state={other} kernel={shown} text={text} source={shown.sources[text.language] ?? ''}
        several={Object.keys(shown.sources).length > 1} editing={null}
      />
    </div>
  );
}

function NotYet({ state, wanted }: { state: State; wanted: Elsewhere }) {
  return (
    <NotThere state={state} lacking={`${wanted.title} text of this kernel`} label="Compile" make={() => compileFor(state, wanted)}>
      The record has no {wanted.title} text: it is {wanted.about}.
    </NotThere>
  );
}
