import type { Kernel } from '../../record/generated/record';
import type { State } from '../state';
import { askForAssembly } from './assembly';
import { NotThere } from './NotThere';

/** What stands in the place of an assembly that is not there yet. */
export function NoAssembly({ state, kernel }: { state: State; kernel: Kernel }) {
  return (
    <NotThere state={state} lacking="assembly" label="Compile to assembly" make={() => askForAssembly(state, kernel)}>
      The record has none: it takes a run of the program and of the C compiler.
    </NotThere>
  );
}
