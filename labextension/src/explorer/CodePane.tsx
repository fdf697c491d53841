import type { State } from './state';

export function CodePane({ state }: { state: State }) {
  return <p class="nbc-empty">{state.data.record.id}</p>;
}
