import { useSignal } from '@preact/signals';
import { graphTitle, STAGES, tabbed, textOf } from './stages';
import type { State } from './state';
import { Tabs } from './Tabs';

/** The text of every stage, as it prints, in the order of the pipeline. */
export function TextPane({ state }: { state: State }) {
  const { record } = state.data;
  const graphs = record.graphs
    .filter((graph) => graph.text.trim())
    .sort((a, b) => STAGES.indexOf(a.stage) - STAGES.indexOf(b.stage));
  const chosen = useSignal(graphs[graphs.length - 1]?.id ?? '');
  const shown = graphs.find((graph) => graph.id === chosen.value);
  if (!shown) return <p class="nbc-empty">No stage of this record has a text.</p>;
  return (
    <>
      <Tabs
        label="stages"
        tabs={tabbed(graphs, shown).map((graph) => ({ id: graph.id, label: graphTitle(record, graph) }))}
        chosen={shown.id}
        choose={(id) => (chosen.value = id)}
      />
      <pre class="nbc-text nbc-code" tabIndex={0}>{textOf(shown)}</pre>
    </>
  );
}
