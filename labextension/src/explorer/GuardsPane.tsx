import type { State } from './state';

export function GuardsPane({ state }: { state: State }) {
  return <p class="nbc-empty">{state.data.record.id}</p>;
}
