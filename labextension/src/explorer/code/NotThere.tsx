import type { ComponentChildren } from 'preact';
import { Asked } from '../PlayBar';
import type { State } from '../state';

interface Props {
  state: State;
  /** What the record lacks: `assembly`. */
  lacking: string;
  /** What the button says, and does. */
  label: string;
  make: () => Promise<unknown>;
  /** What making it takes. */
  children: ComponentChildren;
}

/** What stands in the place of a text that only a live kernel makes. */
export function NotThere({ state, lacking, label, make, children }: Props) {
  if (!state.host.kernel.value) {
    return <p class="nbc-empty nbc-no-assembly">The record has no {lacking}: a live kernel makes it. {state.host.needs}</p>;
  }
  const busy = state.play.step.value !== null;
  const here = state.play.place.value === 'code';
  return (
    <div class="nbc-no-assembly" onClick={(event) => event.stopPropagation()}>
      {here && <Asked state={state} />}
      {!(here && busy) && (
        <p class="nbc-empty">
          <button type="button" class="nbc-button" disabled={busy} onClick={() => void make()}>{label}</button>{' '}
          {children}
        </p>
      )}
    </div>
  );
}
