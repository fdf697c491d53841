import type { Kernel } from '../../record/generated/record';
import { Asked } from '../PlayBar';
import type { State } from '../state';
import { askForAssembly } from './assembly';

/** What stands in the place of an assembly that is not there yet. */
export function NoAssembly({ state, kernel }: { state: State; kernel: Kernel }) {
  if (!state.host.kernel.value) {
    return <p class="nbc-empty nbc-no-assembly">The record has no assembly: a live kernel makes it. {state.host.needs}</p>;
  }
  const busy = state.play.step.value !== null;
  const here = state.play.place.value === 'code';
  return (
    <div class="nbc-no-assembly" onClick={(event) => event.stopPropagation()}>
      {here && <Asked state={state} />}
      {!(here && busy) && (
        <p class="nbc-empty">
          <button type="button" class="nbc-button" disabled={busy} onClick={() => void askForAssembly(state, kernel)}>
            Compile to assembly
          </button>{' '}
          The record has none: it takes a run of the program and of the C compiler.
        </p>
      )}
    </div>
  );
}
