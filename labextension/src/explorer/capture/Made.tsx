import { litClass, pointing, type State } from '../state';
import { clip } from '../units';

const CHIPS = 24;

/** What a step made, each linked to where else it is shown. */
export function Made({ state, ids }: { state: State; ids: readonly string[] }) {
  return (
    <span class="nbc-walk-made">
      {ids.slice(0, CHIPS).map((id) => (
        <span key={id} class={`nbc-loop ${litClass(state.lit.value, [id])}`} role="button" title={id} {...pointing(state, { ids: [id] })}>
          {clip(nodeText(state, id), 90)}
        </span>
      ))}
      {ids.length > CHIPS && <span class="nbc-quiet">+{ids.length - CHIPS}</span>}
    </span>
  );
}

/** A node's line of its graph, else its name. */
function nodeText(state: State, id: string): string {
  const node = state.links.nodes.get(id);
  return node?.text || node?.name || id;
}

/** Shows a graph beside the code, where the explorer draws one. */
export function ShowGraph({ state, id }: { state: State; id: string }) {
  if (!state.data.record.graphs.some((graph) => graph.id === id)) return null;
  return (
    <button type="button" class="nbc-button" aria-pressed={state.graph.value === id} onClick={() => (state.graph.value = id)}>
      Show {id} in the graph
    </button>
  );
}
